// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/fake/fake_communicator.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "accordion/comm/elements.h"
#include "accordion/comm/part_reducer.h"
#include "accordion/comm/private_buffer.h"

namespace accordion {
namespace {

class FakeCommunicator : public Communicator {
 public:
  FakeCommunicator(std::string_view backend, int rank, int world_size,
                   std::chrono::milliseconds timeout)
      : backend_(backend),
        rank_(rank),
        world_size_(world_size),
        timeout_(timeout) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string_view backend() const override { return backend_; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    return allocate(bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    return allocate(bytes, label);
  }
  void acquire(CommBuffer&) override {}
  void release(CommBuffer&) override {}

  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer*,
                       std::string_view) override {
    for (const GatherPart& part : parts) {
      detail::check_part(part, "all_gather_into");
      if (part.local == nullptr) {
        continue;
      }
      for (int rank = 0; rank < world_size_; ++rank) {
        detail::convert(
            detail::offset(part.full, part.full_dtype, rank * part.numel),
            part.full_dtype, part.local, part.local_dtype, part.numel);
      }
    }
    count(CommOp::AllGather, detail::full_bytes(parts, world_size_));
    return {};
  }

  Work reduce_scatter_into(std::span<const ReducePart> parts, CommBuffer*,
                           std::string_view) override {
    for (const ReducePart& part : parts) {
      detail::check_part(part, "reduce_scatter_into");
      sum_copies(
          part, detail::offset(part.full, part.full_dtype, rank_ * part.numel));
    }
    count(CommOp::ReduceScatter, detail::full_bytes(parts, world_size_));
    return {};
  }

  Work all_reduce(std::span<const ReducePart> parts, CommBuffer*,
                  std::string_view) override {
    for (const ReducePart& part : parts) {
      detail::check_part(part, "all_reduce");
      sum_copies(part, part.full);
    }
    count(CommOp::AllReduce, detail::full_bytes(parts, 1));
    return {};
  }

  void broadcast(void*, std::int64_t bytes, int, std::string_view) override {
    count(CommOp::Broadcast, bytes);
  }
  void barrier(std::string_view) override { count(CommOp::Barrier, 0); }

 protected:
  [[nodiscard]] virtual std::unique_ptr<CommBuffer> make_buffer(
      std::int64_t bytes, std::string_view label) const {
    return detail::make_private_buffer(bytes, label);
  }

 private:
  std::unique_ptr<CommBuffer> allocate(std::int64_t bytes,
                                       std::string_view label) {
    auto buffer = make_buffer(bytes, label);
    count(CommOp::Allocate, bytes);
    return buffer;
  }

  void sum_copies(const ReducePart& part, const void* operand) const {
    if (part.local == nullptr) {
      if (part.sum_of_squares != nullptr) {
        *part.sum_of_squares = 0.0;
      }
      return;
    }
    const std::vector<const void*> copies(static_cast<std::size_t>(world_size_),
                                          operand);
    detail::reduce(copies, part);
  }

  void count(CommOp op, std::int64_t bytes) {
    counters_.calls[static_cast<std::size_t>(op)] += 1;
    counters_.bytes[static_cast<std::size_t>(op)] += bytes;
  }

  const std::string backend_;
  const int rank_;
  const int world_size_;
  const std::chrono::milliseconds timeout_;
  CommCounters counters_;
};

class MetaCommunicator final : public FakeCommunicator {
 public:
  using FakeCommunicator::FakeCommunicator;
  bool has_memory() const override { return false; }
  std::unique_ptr<CommBuffer> allocate_private(
      std::int64_t bytes, std::string_view label) const override {
    return make_buffer(bytes, label);
  }
  std::unique_ptr<Communicator> make_lone() const override {
    return make_meta_communicator(0, 1);
  }

 protected:
  std::unique_ptr<CommBuffer> make_buffer(
      std::int64_t bytes, std::string_view label) const override {
    return detail::make_address_buffer(bytes, label);
  }
};

void check_rank(int rank, int world_size, std::string_view caller) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw std::invalid_argument(fmt::format(
        "[{}] rank {} of {}: ranks count from 0 and there is at least one",
        caller, rank, world_size));
  }
}

}  // namespace

std::unique_ptr<Communicator> make_meta_communicator(int rank, int world_size) {
  check_rank(rank, world_size, "make_meta_communicator");
  return std::make_unique<MetaCommunicator>("meta", rank, world_size,
                                            std::chrono::minutes(5));
}

std::unique_ptr<Communicator> make_fake_communicator(int rank, int world_size) {
  check_rank(rank, world_size, "make_fake_communicator");
  return std::make_unique<FakeCommunicator>("fake", rank, world_size,
                                            std::chrono::minutes(5));
}

std::unique_ptr<Communicator> make_lone_communicator(
    std::string_view backend, std::chrono::milliseconds timeout) {
  return std::make_unique<FakeCommunicator>(backend, 0, 1, timeout);
}

}  // namespace accordion
