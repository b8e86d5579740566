// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/fsdp/allocation_meter.h"
#include "accordion/fsdp/memory_error.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/schedule/memory_by_kind.h"

namespace accordion {

class Executor;

/// Knows what this rank's memory is held for, by kind and phase, while it
/// lives.
///
///     accordion::MemoryTracker memory;  // before the module is made
///     …                                 // net, fully_shard, AdamW
///     memory.watch(*net, {.optimizer_bytes = [&] {
///                    return adamw.state_bytes();
///                  }});
///     {
///       const accordion::MemoryPhaseScope phase(memory, MemoryPhase::Forward);
///       loss = …;
///     }
///     accordion::describe(memory.take_peak().highest());
///
/// Parameters, gradients and slots are what the sharded module says; the
/// optimizer's state is what its owner says. What else tensors take up is
/// counted ([Note: the allocator hook]): as activations where it is allocated
/// in the forward or backward phase, else as `other`. What the process holds
/// besides (code, libraries, data that is no tensor, memory that malloc keeps
/// for later) is no tensor's, and is the difference to the operating system's
/// figure.
///
/// Costs    that of the meter, and some microseconds a phase
/// Threads  the one that runs the passes, for its whole life
class MemoryTracker {
 public:
  struct Sources {
    /// Of the optimizer's state; empty: counts as `other`. State allocated
    /// before the tracker was made lessens `other` by what it has, down to 0.
    std::function<std::int64_t()> optimizer_bytes = {};
    /// Of buffers through which its state passes where that is offloaded: no
    /// tensors, and the optimizer's all the same.
    std::function<std::int64_t()> optimizer_buffer_bytes = {};
    /// Ranks on this host. Where a backend joins several hosts they share
    /// slots, which then count for each with its part.
    int local_ranks = 1;
  };

  MemoryTracker() = default;
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  /// From here on knows the parameters of `root`, which fully_shard was given.
  ///
  /// Throws c10::ValueError for a module that is not sharded
  void watch(const torch::nn::Module& root, Sources sources);
  template <class Contained>
  void watch(const torch::nn::ModuleHolder<Contained>& root, Sources sources) {
    watch(static_cast<const torch::nn::Module&>(*root), std::move(sources));
  }

  /// Counts what is on meta as though it had memory, for modules sharded over a
  /// mesh that has none. Before they are made.
  void count_meta() { meter_.count_meta(); }

  /// Lets errors name unit and action, as `trace` has them; null: the phase
  /// alone.
  void set_trace(std::shared_ptr<const StepTrace> trace) {
    trace_ = std::move(trace);
  }

  /// The most that this rank may hold, all kinds together; nullopt, as at
  /// first: no limit. Whatever would exceed it throws MemoryError in its place:
  /// an allocation of a tensor, or the phase that is to begin.
  ///
  /// Throws MemoryError where more is held already
  void set_limit(std::optional<std::int64_t> bytes);

  /// Begins a phase; returns the one before. Throws MemoryError.
  MemoryPhase enter(MemoryPhase phase);
  /// The same without a look at the limit.
  void leave_to(MemoryPhase phase) noexcept;

  /// What is held now.
  [[nodiscard]] MemoryByKind now() const;
  /// What was held at most since the last call.
  [[nodiscard]] MemoryPeak take_peak();
  /// The same since the tracker was made.
  [[nodiscard]] const MemoryPeak& peak() const { return peak_; }
  /// What a MemoryError would say of this moment.
  [[nodiscard]] MemoryError::Facts facts() const;

  /// Of each change of tensors' memory, for memory_timeline.
  void record(bool on) { meter_.record(on); }
  [[nodiscard]] std::vector<AllocationMeter::Sample> samples() const {
    return meter_.samples();
  }

 private:
  /// What is known without the meter, and how much of it the meter counted.
  struct Known {
    MemoryByKind bytes = {};
    AllocatedBytes counted = {};
    std::int64_t optimizer_tensors = 0;  ///< of bytes.optimizer
  };

  [[nodiscard]] Known known() const;
  [[nodiscard]] static MemoryByKind by_kind(const Known& known,
                                            const AllocatedBytes& live);
  void look();
  void require_within_limit();
  void pass_limit_on();
  [[noreturn]] void refuse(const AllocationMeter::Refused& refused);
  [[nodiscard]] std::string place() const;

  AllocationMeter meter_;
  std::weak_ptr<const Executor> executor_;
  Sources sources_;
  int sharing_ranks_ = 1;
  std::shared_ptr<const StepTrace> trace_;
  std::optional<std::int64_t> limit_;
  Known known_;       // when a phase last began or ended
  MemoryPeak since_;  // what take_peak gives next
  MemoryPeak peak_;
};

/// A phase that lasts as long as this lives.
class [[nodiscard]] MemoryPhaseScope {
 public:
  MemoryPhaseScope(MemoryTracker& tracker, MemoryPhase phase)
      : tracker_(tracker), before_(tracker.enter(phase)) {}
  MemoryPhaseScope(const MemoryPhaseScope&) = delete;
  MemoryPhaseScope& operator=(const MemoryPhaseScope&) = delete;
  ~MemoryPhaseScope() { tracker_.leave_to(before_); }

 private:
  MemoryTracker& tracker_;
  MemoryPhase before_;
};

}  // namespace accordion
