// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/slot_pool.h"
#include "accordion/fsdp/unit_boundary.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// Drives the units of one sharded module through its steps.
///
/// // [Note: recorded, then replayed]
/// A C++ module cannot be traced, so the first pass (forward and backward, up
/// to the end of the backward) runs on demand: a unit is gathered when its
/// forward begins, reduced when its backward ends. The markers that the program
/// passed are recorded, and make_schedule turns them into a schedule that the
/// following passes replay: at each marker the actions after it are done,
/// prefetches and frees included. A pass that leaves the schedule is finished
/// on demand, and the schedule is made anew. All ranks run the same program, so
/// they diverge alike; one that diverges alone gets the communicator's error
/// that names both sides.
class Executor : public FsdpUnit::Listener,
                 public BoundaryListener,
                 public std::enable_shared_from_this<Executor> {
 public:
  struct UnitPlan {
    UnitMembers members;
    CommGroups groups;
    bool kept = false;  ///< unsharded from forward to backward
  };

  Executor(std::vector<UnitPlan> plans, const FsdpOptions& options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor() override = default;
  /// Shows the units' sharded faces and allocates the slots of a step in which
  /// each unit runs once.
  void attach();

  [[nodiscard]] const std::vector<std::shared_ptr<FsdpUnit>>& units() const {
    return units_;
  }
  [[nodiscard]] const StepSchedule& schedule() const { return schedule_; }
  void set_schedule(StepSchedule schedule);
  [[nodiscard]] const SlotPool& parameter_slots() const {
    return parameter_slots_;
  }
  [[nodiscard]] const SlotPool& gradient_slots() const {
    return gradient_slots_;
  }

  /// Around a unit's forward; the tensors may be replaced.
  void before_forward(int unit, std::span<at::Tensor* const> inputs);
  void after_forward(int unit, std::span<at::Tensor* const> outputs);
  void forward_threw(int unit) noexcept;

  /// Reshards what is still unsharded: the root after a forward that no
  /// backward followed. Does nothing inside forward or backward.
  void settle();

  void enter_backward(UnitCall& call) override;
  void leave_backward(UnitCall& call) override;
  void gradient_arrived(FsdpUnit& unit) override;

 private:
  /// Where a unit is in the current pass.
  struct Progress {
    int open_forwards = 0;
    /// Calls in progress that autograd records; null where it does not.
    std::vector<std::shared_ptr<UnitCall>> calls;
    bool in_backward = false;
    int pending_inputs = 0;           ///< leave_backward still to come
    bool wanted_by_backward = false;  ///< a recorded forward ended
  };

  // Markers.
  void pass_marker(ActionKind kind, int unit);
  void begin_pass();
  void end_pass();
  void abandon_pass() noexcept;
  [[nodiscard]] bool matches(ActionKind kind, int unit) const;
  void run_actions();
  void replan();

  // Actions.
  void do_action(const Action& action);
  void on_demand(ActionKind kind, int unit);
  void unshard(int unit, int slot);
  void ensure_unsharded(int unit);
  void reshard(int unit);
  void begin_gradients(int unit, int slot);
  void finish_reduce(int unit);
  void finish_reductions();
  void reshard_all();

  void begin_backward_of(int unit);
  void end_backward_if_complete(int unit);
  void queue_end_of_backward();
  [[nodiscard]] int index_of(const FsdpUnit& unit) const;
  FsdpUnit& unit_at(int unit) {
    return *units_[static_cast<std::size_t>(unit)];
  }
  Progress& progress_of(int unit) {
    return progress_[static_cast<std::size_t>(unit)];
  }

  FsdpOptions options_;
  std::vector<UnitPlan> plans_;
  std::vector<std::shared_ptr<FsdpUnit>> units_;
  std::vector<ScheduledUnit> scheduled_;
  std::vector<Progress> progress_;
  SlotPool parameter_slots_;
  SlotPool gradient_slots_;

  StepSchedule schedule_;
  std::vector<Action> recorded_;  // markers of this pass
  std::size_t cursor_ = 0;        // next action of schedule_
  bool pass_open_ = false;
  bool following_ = false;
  bool end_queued_ = false;  // the engine will call end_pass
};

}  // namespace accordion
