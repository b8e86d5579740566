// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/offloaded_activations.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/rank_turns.h"
#include "accordion/fsdp/schedule_cache.h"
#include "accordion/fsdp/slot_pool.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/fsdp/unit_boundary.h"
#include "accordion/fsdp/unit_settings.h"
#include "accordion/offload/paged_arrays.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// Drives the units of one sharded module through its passes.
///
/// // [Note: recorded, then replayed]
/// A C++ module cannot be traced, so the first pass (forward and backward, up
/// to the end of the backward) runs on demand: a unit is gathered when its
/// forward begins, reduced when its backward ends. Ranks take turns there
/// ([Note: turns]), so that one may leave out what another calls. The markers
/// that all of them passed are recorded, and make_schedule turns them into a
/// schedule that the following passes replay: at each marker the actions after
/// it are done, prefetches and frees included. A pass that leaves the schedule
/// is finished on demand, and the schedule is made anew.
///
/// // [Note: joining]
/// In a replayed pass, a marker that the schedule has further on means that
/// this program left out what is in between: the data needed no such unit, on
/// this rank or on all. The collectives of those units are joined, with zero
/// for gradients, and the pass is back on its schedule. So a rank that skips a
/// unit keeps no other waiting. One that calls a unit which no pass before
/// called gets the communicator's error that names both sides; for programs
/// that do so there is FsdpOptions::static_graph.
class Executor : public FsdpUnit::Listener,
                 public BoundaryListener,
                 public std::enable_shared_from_this<Executor> {
 public:
  struct UnitPlan {
    UnitMembers members = {};
    CommGroups groups = {};
    UnitSettings settings = {};
    /// The units whose parameters its forward reads: itself and, where it
    /// registers some of theirs, units around it.
    std::vector<int> reads = {};
  };

  /// `world`: all ranks of the mesh.
  Executor(std::vector<UnitPlan> plans, const FsdpOptions& options,
           std::shared_ptr<SlotPools> pools,
           std::shared_ptr<Communicator> world);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor() override = default;
  /// Shows the units' sharded faces and allocates the slots of a pass in which
  /// each unit runs once.
  void attach();

  [[nodiscard]] const std::vector<std::shared_ptr<FsdpUnit>>& units() const {
    return units_;
  }
  [[nodiscard]] const SlotPools& pools() const { return *pools_; }
  [[nodiscard]] const std::shared_ptr<SlotPools>& shared_pools() const {
    return pools_;
  }
  /// What is offloaded of the units' shards; null where nothing is.
  [[nodiscard]] const std::shared_ptr<PagedArrays>& pages() const {
    return pages_;
  }
  [[nodiscard]] bool offloads_parameters() const {
    return options_.offload && options_.offload->parameters;
  }
  /// What is offloaded of activations; null where nothing is.
  [[nodiscard]] const std::shared_ptr<OffloadedActivations>& activations()
      const {
    return activations_;
  }
  /// What the last pass followed or, where it had none, recorded.
  [[nodiscard]] const StepSchedule& schedule() const { return schedule_; }
  void set_schedule(StepSchedule schedule);
  /// Grows with each pass that found requires_grad changed.
  [[nodiscard]] std::uint64_t trainable_version() const {
    return trainable_version_;
  }

  /// Around a unit's forward; the tensors may be replaced.
  void before_forward(int unit, std::span<at::Tensor* const> inputs);
  void after_forward(int unit, std::span<at::Tensor* const> outputs);
  void forward_threw(int unit) noexcept;

  /// Reshards what is still unsharded: the root after a forward that no
  /// backward followed, and waits until shards may be written to ([Note:
  /// gathers in place]). Does nothing inside forward or backward.
  void settle();
  /// Whether this is inside forward or backward.
  [[nodiscard]] bool is_busy() const;

  void enter_backward(UnitCall& call) override;
  void leave_backward(UnitCall& call) override;
  void gradient_arrived(int unit) override;

  /// See UnitHooks.
  [[nodiscard]] torch::autograd::edge_list recomputed_edges(int unit);
  [[nodiscard]] std::unique_ptr<KeptTensor> keep_argument(
      const at::Tensor& argument);
  void before_recompute(int unit);
  void after_recompute(int unit) noexcept;

  /// Called when a unit's gradient is complete, where it does not stay.
  using UnitStep = std::function<void(int unit)>;
  void set_unit_step(UnitStep step) { unit_step_ = std::move(step); }
  [[nodiscard]] bool has_unit_step() const { return unit_step_ != nullptr; }

  // ---- Controls ----

  /// Null, as at first, records nothing.
  void set_trace(std::shared_ptr<StepTrace> trace) {
    trace_ = std::move(trace);
  }
  /// Called with what a unit's forward returns; empty, as at first: nothing.
  using OutputWatch =
      std::function<void(int unit, std::span<at::Tensor* const> outputs)>;
  void set_output_watch(OutputWatch watch) { output_watch_ = std::move(watch); }
  [[nodiscard]] PassSettings& pass_settings() { return pass_settings_; }
  [[nodiscard]] UnitSettings& settings_of(int unit) {
    return settings_[static_cast<std::size_t>(unit)];
  }
  /// Starts a unit's all-gather; it stays unsharded until its next reshard.
  void start_unshard(int unit) { unshard(unit, SlotPool::kAnySlot); }
  void finish_unshard(int unit) { ensure_unsharded(unit); }
  /// Reshards one unit. Throws c10::ValueError while it is in use.
  void reshard_now(int unit);
  /// A pass without a forward of this rank's own, or without a backward.
  void join_pass();

 private:
  /// Where a unit is in the current pass.
  struct Progress {
    int open_forwards = 0;
    /// Calls in progress that autograd records; null where it does not.
    std::vector<std::shared_ptr<UnitCall>> calls = {};
    bool in_backward = false;
    int pending_inputs = 0;           ///< leave_backward still to come
    bool awaits_recomputed = false;   ///< a checkpointed call still to come
    bool wanted_by_backward = false;  ///< a recorded forward ended
    bool stepped = false;
  };

  // Markers: executor.cpp.
  void pass_marker(ActionKind kind, int unit);
  void begin_backward_of(int unit);
  void end_backward_if_complete(int unit);
  void recomputed(int unit);
  void queue_end_of_backward();

  // The pass: executor_pass.cpp.
  void begin_pass(const std::optional<Action>& first);
  void check_steps() const;
  void end_pass();
  void abandon_pass() noexcept;
  void follow(const StepSchedule& schedule);
  [[nodiscard]] ScheduledUnit describe(std::size_t unit_index) const;
  void describe_pass();
  [[nodiscard]] bool matches(ActionKind kind, int unit) const;
  void run_actions();
  void replan();

  // What peers read and write of shards that are gathered in place.
  void end_forward(int unit, std::span<at::Tensor* const> outputs);
  void await_readers();
  void meet_if_whole();

  void open_pages();
  void close_pages();
  void read_ahead();
  [[nodiscard]] int most_read_ahead() const;

  // Ranks whose programs differ: executor_joining.cpp.
  void take_turns(const std::optional<Action>& mine);
  void leave_schedule(const Action& marker);
  [[nodiscard]] int scheduled_depth(ActionKind begin, ActionKind end,
                                    int unit) const;
  [[nodiscard]] bool is_inside(ActionKind kind, int unit) const;
  bool join_up_to(ActionKind kind, int unit);
  void join(const Action& action);

  // Actions: executor_actions.cpp.
  void do_action(const Action& action);
  void on_demand(ActionKind kind, int unit, bool still_open);
  void unshard(int unit, int slot);
  void ensure_unsharded(int unit);
  void reshard(int unit);
  void begin_gradients(int unit, int slot);
  void end_gradients(int unit);
  void start_reduce(int unit, int slot);
  void finish_reduce(int unit);
  void start_all_reduce(int unit);
  void finish_all_reduce(int unit);
  void hand_over(int unit);
  void step(int unit);
  void offload_gradients(int unit);
  void finish_reduction_of(int unit);
  void finish_reductions();
  void reduce_leftovers();
  void reshard_all();
  void reshard_after_pass();

  FsdpUnit& unit_at(int unit) {
    return *units_[static_cast<std::size_t>(unit)];
  }
  Progress& progress_of(int unit) {
    return progress_[static_cast<std::size_t>(unit)];
  }
  [[nodiscard]] const Progress& progress_of(int unit) const {
    return progress_[static_cast<std::size_t>(unit)];
  }
  [[nodiscard]] TraceScope traced(SpanKind kind, int unit) const {
    return {trace_.get(), kind, unit};
  }
  void trace_marker(ActionKind kind, int unit);
  /// The unit as this pass found it.
  const ScheduledUnit& described(int unit) const {
    return pass_[static_cast<std::size_t>(unit)];
  }

  FsdpOptions options_;
  std::shared_ptr<PagedArrays> pages_;
  std::optional<PagedArrays::BufferedUse> pages_use_;  // while a pass is open
  std::shared_ptr<OffloadedActivations> activations_;
  std::vector<std::shared_ptr<FsdpUnit>> units_;
  std::vector<UnitSettings> settings_;
  std::vector<std::vector<int>> reads_;  // by unit, see UnitPlan
  /// By unit: behind all checkpointed calls in a backward that read it.
  std::vector<NodePtr> recomputed_;
  PassSettings pass_settings_;
  std::vector<Progress> progress_;
  std::shared_ptr<SlotPools> pools_;
  std::shared_ptr<Communicator> world_;

  ScheduleCache schedules_;
  StepSchedule schedule_;  // of this pass, or the last
  SlotMap parameter_map_;  // of schedule_
  SlotMap gradient_map_;
  SlotMap gradient_shard_map_;
  /// What this pass, or the last or next, is to do.
  std::vector<ScheduledUnit> pass_;
  std::vector<Action> recorded_;  // markers of this pass
  std::size_t cursor_ = 0;        // next action of schedule_
  std::shared_ptr<StepTrace> trace_;
  OutputWatch output_watch_;
  UnitStep unit_step_;
  /// Not null in a pass that began without a schedule.
  std::unique_ptr<RankTurns> turns_;
  std::vector<int> unended_;  // units whose forward threw, of which peers wait
                              // to hear
  std::optional<Action> left_at_;  // where this pass left its schedule
  /// Whether a unit that is gathered in place was resharded since this rank
  /// last waited until all ranks had.
  bool may_have_readers_ = false;
  bool pass_open_ = false;
  bool following_ = false;
  bool end_queued_ = false;  // the engine will call end_pass
  std::uint64_t trainable_version_ = 0;
};

}  // namespace accordion
