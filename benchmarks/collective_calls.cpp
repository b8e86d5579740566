// SPDX-License-Identifier: BSD-3-Clause
#include "benchmarks/collective_calls.h"

#include <algorithm>
#include <cstring>

#include "accordion/comm/private_buffer.h"
#include "benchmarks/stream_kernels.h"

namespace accordion::benchmarks {
namespace {

constexpr std::size_t kSlots = 2;  // as many as a prefetch needs at least

std::unique_ptr<CommBuffer> private_floats(std::int64_t numel) {
  auto buffer = detail::make_private_buffer(4 * numel, "benchmark");
  std::fill_n(reinterpret_cast<float*>(buffer->data()), numel, 1.0f);
  return buffer;
}

}  // namespace

const char* name(Collective collective) {
  switch (collective) {
    case Collective::AllGather:
      return "all-gather";
    case Collective::ReduceScatter:
      return "reduce-scatter";
    case Collective::AllReduce:
      return "all-reduce";
    case Collective::Barrier:
      return "barrier";
  }
  return "";
}

CollectiveCalls::CollectiveCalls(Communicator& communicator,
                                 Collective collective, DType wire,
                                 std::int64_t bytes)
    : communicator_(communicator),
      collective_(collective),
      wire_(wire),
      numel_(bytes / element_bytes(wire)),
      local_(private_floats(numel_)) {
  if (collective == Collective::AllGather) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      slots_.push_back(communicator.allocate_common(bytes, "slot"));
    }
  } else if (collective != Collective::Barrier) {
    gradients_ = communicator.allocate_exported(bytes, "gradients");
    std::memset(gradients_->data(), 0, static_cast<std::size_t>(bytes));
  }
}

std::function<void()> CollectiveCalls::call() const {
  switch (collective_) {
    case Collective::AllGather:
      return [this, turn = std::size_t{0}]() mutable { gather(turn++); };
    case Collective::Barrier:
      return [this] { communicator_.barrier("barrier"); };
    default:
      return [this] { reduce(); };
  }
}

void CollectiveCalls::gather(std::size_t turn) const {
  CommBuffer& slot = *slots_[turn % kSlots];
  const GatherPart part = {local_->data(), DType::Float32, slot.data(), wire_,
                           numel_ / communicator_.world_size()};
  communicator_.all_gather_into({&part, 1}, &slot, "unit").wait();
  communicator_.release(slot);
}

void CollectiveCalls::reduce() const {
  communicator_.acquire(*gradients_);
  const int world_size = communicator_.world_size();
  ReducePart part = {.full = gradients_->data(),
                     .full_dtype = wire_,
                     .local = local_->data(),
                     .local_dtype = DType::Float32,
                     .reduce_dtype = wire_,
                     .numel = numel_,
                     .scale = 1.0 / world_size};
  if (collective_ == Collective::AllReduce) {
    return communicator_.all_reduce({&part, 1}, gradients_.get(), "unit")
        .wait();
  }
  part.reduce_dtype = DType::Float32;
  part.numel = numel_ / world_size;
  communicator_.reduce_scatter_into({&part, 1}, gradients_.get(), "unit")
      .wait();
}

Traffic CollectiveCalls::traffic() const {
  const auto numel = static_cast<double>(numel_);
  const auto wire = static_cast<double>(element_bytes(wire_));
  const double world_size = communicator_.world_size();
  switch (collective_) {
    case Collective::AllGather:
      return {.copied = numel * (4 + wire)};
    case Collective::ReduceScatter:
      return {.added = numel * (world_size * wire + 4)};
    case Collective::AllReduce:
      // Each rank sums its range, then copies the sums of all.
      return {.copied = numel * world_size * (wire + 4),
              .added = numel * (world_size + 1) * wire};
    case Collective::Barrier:
      return {};
  }
  return {};
}

MemoryLimit::MemoryLimit(int world_size, std::int64_t bytes)
    : world_size_(world_size),
      numel_(std::max<std::int64_t>(bytes / 4 / world_size / 16 * 16, 16)),
      memory_(private_floats(4 * numel_)) {}

std::vector<std::function<void()>> MemoryLimit::calls() const {
  auto* a = reinterpret_cast<float*>(memory_->data());
  float* b = a + numel_;
  // Results by turns, as a gather has slots.
  auto result = [b, numel = numel_, turn = 0]() mutable {
    return b + (1 + turn++ % 2) * numel;
  };
  const auto copy = [=, numel = numel_](auto* loop) {
    return [=]() mutable { loop(result(), a, numel); };
  };
  const auto add = [=, numel = numel_](auto* loop) {
    return [=]() mutable { loop(result(), a, b, numel); };
  };
  return {copy(stream_copy), copy(stream_copy_past_cache), add(stream_add),
          add(stream_add_past_cache)};
}

double MemoryLimit::seconds(const Traffic& traffic,
                            const std::vector<Times>& times,
                            double Times::*kind) const {
  const double numel = static_cast<double>(numel_) * world_size_;
  const auto better = [&](std::size_t one, std::size_t other) {
    return std::min(times[one].*kind, times[other].*kind);
  };
  const double copy = better(0, 1) / (numel * 8);
  const double add = better(2, 3) / (numel * 12);
  return traffic.copied * copy + traffic.added * add;
}

}  // namespace accordion::benchmarks
