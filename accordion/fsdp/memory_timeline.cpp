// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/memory_timeline.h"

#include <algorithm>
#include <functional>

namespace accordion {
namespace {

std::vector<MemoryMoment> moments_of(const StepTrace& trace) {
  std::vector<MemoryMoment> result;
  for (const Span& span : trace.spans()) {
    if (span.end_ns != Span::kOpen) {
      result.push_back(
          {.ns = span.begin_ns, .kind = span.kind, .unit = span.unit});
      result.push_back({.ns = span.end_ns,
                        .kind = span.kind,
                        .unit = span.unit,
                        .end = true});
    }
  }
  std::ranges::stable_sort(result, {}, &MemoryMoment::ns);
  return result;
}

/// Which units hold a slot.
class SlotsInUse {
 public:
  explicit SlotsInUse(std::span<const ScheduledUnit> units) : units_(units) {
    for (const ScheduledUnit& unit : units) {
      unsharded_.push_back(unit.begins_unsharded);
      whole_.push_back(unit.begins_with_gradient);
    }
  }

  void pass(const MemoryMoment& moment) {
    if (moment.unit < 0) {
      return;
    }
    const auto unit = static_cast<std::size_t>(moment.unit);
    if (moment.kind == SpanKind::StartGather && !moment.end) {
      unsharded_[unit] = true;
    } else if (moment.kind == SpanKind::Reshard && moment.end) {
      unsharded_[unit] = false;
    } else if (moment.kind == SpanKind::BeginGradients && !moment.end) {
      whole_[unit] = true;
    } else if (moment.kind == SpanKind::AwaitReduce && moment.end) {
      whole_[unit] = false;
    }
  }

  [[nodiscard]] std::int64_t unsharded_parameters() const {
    return sum(unsharded_, &ScheduledUnit::parameter_slot_bytes);
  }
  [[nodiscard]] std::int64_t whole_gradients() const {
    return sum(whole_, &ScheduledUnit::gradient_bytes);
  }

 private:
  template <class Bytes>
  [[nodiscard]] std::int64_t sum(const std::vector<bool>& held,
                                 Bytes bytes) const {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < held.size(); ++i) {
      total += held[i] ? std::invoke(bytes, units_[i]) : 0;
    }
    return total;
  }

  std::span<const ScheduledUnit> units_;
  std::vector<bool> unsharded_;
  std::vector<bool> whole_;
};

}  // namespace

std::vector<MemoryMoment> memory_timeline(
    const StepTrace& trace, std::span<const AllocationMeter::Sample> samples,
    std::span<const ScheduledUnit> units) {
  std::vector<MemoryMoment> result = moments_of(trace);
  SlotsInUse slots(units);
  AllocationMeter::Sample last;
  for (MemoryMoment& moment : result) {
    while (!samples.empty() && samples.front().ns <= moment.ns) {
      last = samples.front();
      samples = samples.subspan(1);
    }
    slots.pass(moment);
    moment.unsharded_parameters = slots.unsharded_parameters();
    moment.whole_gradients = slots.whole_gradients();
    moment.activations = last.in_passes;
    moment.other = last.outside;
  }
  return result;
}

}  // namespace accordion
