// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/memory_tracker.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/held_memory.h"

namespace accordion {

void MemoryTracker::watch(const torch::nn::Module& root, Sources sources) {
  executor_ = unsettled_state(root, "MemoryTracker").executor;
  sources_ = std::move(sources);
  sharing_ranks_ = ranks_sharing_slots(*executor_.lock(), sources_.local_ranks);
  look();
}

void MemoryTracker::set_limit(std::optional<std::int64_t> bytes) {
  limit_ = bytes;
  look();
  require_within_limit();
}

MemoryPhase MemoryTracker::enter(MemoryPhase phase) {
  look();
  require_within_limit();
  return meter_.enter(phase);
}

void MemoryTracker::leave_to(MemoryPhase phase) noexcept {
  look();
  meter_.enter(phase);
}

MemoryByKind MemoryTracker::now() const {
  return by_kind(known(), meter_.live());
}

MemoryPeak MemoryTracker::take_peak() {
  look();
  return std::exchange(since_, {});
}

MemoryError::Facts MemoryTracker::facts() const {
  return {.held = now(), .limit = limit_, .place = place()};
}

MemoryTracker::Known MemoryTracker::known() const {
  Known known;
  if (sources_.optimizer_bytes) {
    known.optimizer_tensors = sources_.optimizer_bytes();
    known.bytes.optimizer = known.optimizer_tensors;
  }
  if (sources_.optimizer_buffer_bytes) {
    known.bytes.optimizer += sources_.optimizer_buffer_bytes();
  }
  const std::shared_ptr<const Executor> executor = executor_.lock();
  if (executor == nullptr) {
    return known;
  }
  const ShardedBytes bytes = sharded_bytes(*executor);
  known.bytes.sharded_parameters = bytes.parameters;
  known.bytes.unsharded_parameters =
      bytes.parameter_slots / sharing_ranks_ + bytes.whole_copies;
  known.bytes.gradients = bytes.gradients;
  known.bytes.communication_buffers = bytes.gradient_slots;
  known.bytes.activations = bytes.activation_buffers;
  for_each_held_tensor(*executor, [&](const at::Tensor& tensor) {
    if (const auto phase =
            meter_.phase_of(tensor.storage().data_ptr().get_context())) {
      known.counted.by_phase[static_cast<std::size_t>(*phase)] +=
          static_cast<std::int64_t>(tensor.storage().nbytes());
    }
  });
  return known;
}

MemoryByKind MemoryTracker::by_kind(const Known& known,
                                    const AllocatedBytes& live) {
  MemoryByKind result = known.bytes;
  // `live` may be of a moment when some of what is known was not there yet.
  result.activations +=
      std::max<std::int64_t>(0, live.in_passes() - known.counted.in_passes());
  result.other = std::max<std::int64_t>(
      0, live.outside() - known.counted.outside() - known.optimizer_tensors);
  return result;
}

/// Notes what the phase held at most up to here.
void MemoryTracker::look() {
  known_ = known();
  const MemoryByKind highest = by_kind(known_, meter_.take_peak());
  since_.add(meter_.phase(), highest);
  peak_.add(meter_.phase(), highest);
  pass_limit_on();
}

/// The meter knows of a part only; the rest it need not know changes between
/// phases, or when a pass needs another slot.
void MemoryTracker::pass_limit_on() {
  std::optional<std::int64_t> of_meter;
  if (limit_) {
    const AllocatedBytes live = meter_.live();
    of_meter = *limit_ - (by_kind(known_, live).total() - live.total());
  }
  meter_.set_limit(of_meter, [this](const AllocationMeter::Refused& refused) {
    refuse(refused);
  });
}

void MemoryTracker::require_within_limit() {
  if (limit_ && now().total() > *limit_) {
    refuse({});
  }
}

void MemoryTracker::refuse(const AllocationMeter::Refused& refused) {
  MemoryError::Facts what = facts();
  what.requested = refused.bytes;
  what.failure = refused.error;
  limit_.reset();  // what ends the step may allocate
  throw MemoryError(std::move(what));
}

std::string MemoryTracker::place() const {
  std::string text(to_string(meter_.phase()));
  if (trace_ == nullptr) {
    return text;
  }
  const std::shared_ptr<const Executor> executor = executor_.lock();
  std::string action;
  for (const Span& span : trace_->spans() | std::views::reverse) {
    if (span.end_ns != Span::kOpen) {
      continue;
    }
    if (span.unit < 0 || executor == nullptr) {
      action = to_string(span.kind);
      continue;
    }
    const std::string& name =
        executor->units()[static_cast<std::size_t>(span.unit)]->name();
    const std::string unit = name.empty() ? "the root" : "unit '" + name + "'";
    const bool marker =
        span.kind == SpanKind::Forward || span.kind == SpanKind::Backward;
    if (marker) {
      return std::string(to_string(span.kind)) + " of " + unit +
             (action.empty() ? "" : " (" + action + ')');
    }
    if (action.empty()) {
      action = std::string(to_string(span.kind)) + " of " + unit;
    }
  }
  return action.empty() ? text : text + " (" + action + ')';
}

}  // namespace accordion
