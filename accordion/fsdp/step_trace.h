// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace accordion {

/// What a part of a step was spent on.
///
/// // [Note: starts and awaits]
/// A collective has two spans: where it is started (this rank's shard is
/// written, its gradients are copied) and where it is awaited. The second is
/// the waiting for other ranks, and the work that a transport does only then:
/// shared memory sums gradients where they are awaited.
enum class SpanKind : std::uint8_t {
  // Of the executor.
  StartGather,
  AwaitGather,
  Reshard,         ///< parameters freed
  BeginGradients,  ///< a slot taken and its parameters shown
  KeepGradients,   ///< gradients brought to their slot
  StartReduce,
  AwaitReduce,
  StartAllReduce,
  AwaitAllReduce,
  Offload,    ///< sharded gradients copied to buffers that are written behind
  Forward,    ///< of one unit, with all that happens inside
  Backward,   ///< the same
  Recompute,  ///< forward again, of a unit that keeps no activations
  // Of the training loop.
  Data,
  Optimizer,
  Other,  ///< what serves neither the loss nor the update
};

[[nodiscard]] std::string_view to_string(SpanKind kind);

/// One thing that a step did.
struct Span {
  static constexpr std::int64_t kOpen = -1;

  SpanKind kind = SpanKind::Other;
  int unit = -1;              ///< index among the executor's units; -1: none
  std::int64_t begin_ns = 0;  ///< of the steady clock
  std::int64_t end_ns = kOpen;
};

/// The spans of one step, in the order in which they began. They nest: a
/// reduction lies in the backward of a later unit.
///
/// Costs   two readings of the clock a span (about 50 ns); nothing is allocated
///         after the first steps
/// Threads one at a time, as the passes of a module
class StepTrace {
 public:
  /// Forgets the step before and starts the clock of this one.
  void begin_step();
  void end_step() { end_ns_ = now_ns(); }

  void begin(SpanKind kind, int unit = -1) {
    spans_.push_back({kind, unit, now_ns(), Span::kOpen});
  }
  /// Ends the youngest open span of this kind and unit, if there is one.
  void end(SpanKind kind, int unit = -1);

  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }
  [[nodiscard]] std::int64_t begin_ns() const { return begin_ns_; }
  [[nodiscard]] std::int64_t end_ns() const { return end_ns_; }

 private:
  static std::int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }

  std::vector<Span> spans_;
  std::int64_t begin_ns_ = 0;
  std::int64_t end_ns_ = 0;
};

/// Records the scope it lives in; nothing where `trace` is null.
class [[nodiscard]] TraceScope {
 public:
  TraceScope(StepTrace* trace, SpanKind kind, int unit = -1)
      : trace_(trace), kind_(kind), unit_(unit) {
    if (trace_ != nullptr) {
      trace_->begin(kind_, unit_);
    }
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (trace_ != nullptr) {
      trace_->end(kind_, unit_);
    }
  }

 private:
  StepTrace* trace_;
  SpanKind kind_;
  int unit_;
};

/// Where the time of a step went. A moment counts for the innermost span that
/// covers it, so the parts add up to the whole; what no span claims, and what
/// forward and backward spend on themselves, is `compute`.
///
/// Units  milliseconds
struct StepBreakdown {
  double total = 0.0;
  double compute = 0.0;
  double gather = 0.0;
  double gather_wait = 0.0;  ///< part of `gather`: its awaits
  double reduce = 0.0;
  double reduce_wait = 0.0;  ///< part of `reduce`: its awaits
  double optimizer = 0.0;
  double data = 0.0;
  double other = 0.0;
};

[[nodiscard]] StepBreakdown break_down(const StepTrace& trace);
/// The same of spans that nest, between two times.
[[nodiscard]] StepBreakdown break_down(std::span<const Span> spans,
                                       std::int64_t begin_ns,
                                       std::int64_t end_ns);

}  // namespace accordion
