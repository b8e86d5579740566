// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion::testing {

/// A communicator that writes down what it is asked to do, in order, and lets
/// another one do it: "gather block0", "await gather block0", "reduce block0",
/// …
class LoggingCommunicator final : public Communicator {
 public:
  explicit LoggingCommunicator(std::shared_ptr<Communicator> inner)
      : inner_(std::move(inner)) {}

  std::vector<std::string> log;

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::string_view backend() const override { return inner_->backend(); }
  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    note("allocate", label);
    return inner_->allocate_common(bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    note("allocate", label);
    return inner_->allocate_exported(bytes, label);
  }
  void acquire(CommBuffer& buffer) override { inner_->acquire(buffer); }
  void release(CommBuffer& buffer) override {
    log.push_back("release");
    inner_->release(buffer);
  }
  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer* buffer,
                       std::string_view label) override {
    note("gather", label);
    return watched("await gather", label,
                   inner_->all_gather_into(parts, buffer, label));
  }
  Work reduce_scatter_into(std::span<const ReducePart> parts,
                           CommBuffer* buffer,
                           std::string_view label) override {
    note("reduce", label);
    return watched("await reduce", label,
                   inner_->reduce_scatter_into(parts, buffer, label));
  }
  Work all_reduce(std::span<const ReducePart> parts, CommBuffer* buffer,
                  std::string_view label) override {
    note("all-reduce", label);
    return watched("await all-reduce", label,
                   inner_->all_reduce(parts, buffer, label));
  }
  void broadcast(void* data, std::int64_t bytes, int root,
                 std::string_view label) override {
    inner_->broadcast(data, bytes, root, label);
  }
  void barrier(std::string_view label) override { inner_->barrier(label); }
  const CommCounters& counters() const override { return inner_->counters(); }
  std::chrono::milliseconds timeout() const override {
    return inner_->timeout();
  }

 private:
  struct Watched : Work::State {
    Watched(LoggingCommunicator& owner, std::string entry, Work work)
        : owner(owner), entry(std::move(entry)), work(std::move(work)) {}
    void wait() override {
      owner.log.push_back(entry);
      work.wait();
    }
    std::string describe() const override { return entry; }
    LoggingCommunicator& owner;
    std::string entry;
    Work work;
  };

  Work watched(const char* verb, std::string_view label, Work work) {
    return Work(std::make_unique<Watched>(
        *this, std::string(verb) + " " + std::string(label), std::move(work)));
  }
  void note(const char* verb, std::string_view label) {
    log.push_back(std::string(verb) + " " + std::string(label));
  }

  std::shared_ptr<Communicator> inner_;
};

}  // namespace accordion::testing
