// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/dry_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/memory_tracker.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/step_in_backward.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/config_options.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/optimizer_options.h"
#include "accordion/train/training_model.h"

namespace accordion {
namespace {

/// The first pass of each kind records its schedule, the second follows it with
/// slots that fit, the third has nothing left to settle.
constexpr int kSteps = 3;
/// The mesh of a dry run has no memory to share, so that what is planned beside
/// it has slots too; collectives are the same without.
constexpr bool kSharesMemory = false;

/// The kinds of a step's microbatches, one pass each.
std::vector<DryPass> passes_of(std::int64_t microbatches) {
  if (microbatches == 1) {
    return {{.microbatch = Microbatch::Only}};
  }
  std::vector<DryPass> passes = {{.microbatch = Microbatch::First}};
  if (microbatches > 2) {
    passes.push_back(
        {.microbatch = Microbatch::Middle, .times = microbatches - 2});
  }
  passes.push_back({.microbatch = Microbatch::Last});
  return passes;
}

CollectiveTotals counted_collectives(const DeviceMesh& mesh,
                                     const FsdpOptions& options) {
  std::set<const Communicator*> groups = {&mesh.world()};
  for (const MeshAxis& axis : mesh.axes()) {
    groups.insert(&mesh.communicator(axis.name));
  }
  if (options.reshard_to_ranks > 1) {
    groups.insert(mesh.neighbours("shard", options.reshard_to_ranks).get());
  }
  CollectiveTotals sum;
  for (const Communicator* group : groups) {
    sum.add(accordion::counted_collectives(*group), 1);
  }
  return sum;
}

/// Norms that a step in backward agrees on, one a unit that steps.
CollectiveTotals planned_norms(const StepSchedule& schedule,
                               const TrainConfig& config, int shard_ranks) {
  const bool asks = config.train.nonfinite != "allow" ||
                    (config.optimizer.clip_norm > 0 &&
                     config.optimizer.clip_in_backward == "unit_norm");
  CollectiveTotals totals;
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::Step && asks && shard_ranks > 1) {
      totals.all_gather.add(
          1, shard_ranks * static_cast<std::int64_t>(sizeof(double)));
    }
  }
  return totals;
}

/// The objects of a run, as one rank of a mesh without memory.
class DrySteps {
 public:
  DrySteps(const TrainConfig& config, const LlamaConfig& shape,
           const DeviceMesh& mesh)
      : options_(fsdp_options(config)),
        mesh_(mesh),
        tracker_(counting_meta()),
        model_(shape, config, mesh),
        optimizer_(model_.module(), adamw_options(config)) {
    if (config.memory.optimizer_in_backward) {
      stepper_ = std::make_unique<StepInBackward>(
          model_.module(), optimizer_, step_in_backward_options(config));
    }
    tracker_->watch(model_.module(), {.optimizer_bytes = [this] {
                      return optimizer_.held_bytes();
                    }});
    tokens_ = at::empty({config.train.batch_size, config.data.seq_len},
                        at::TensorOptions(at::kLong).device(at::kMeta));
  }

  /// Fills in what was executed, and the schedules.
  void take(std::vector<DryPass>& passes,
            std::vector<StepSchedule>& schedules) {
    (void)tracker_->take_peak();
    schedules.clear();
    for (DryPass& pass : passes) {
      const CollectiveTotals before = counted_collectives(mesh_, options_);
      run(pass.microbatch);
      pass.executed = counted_collectives(mesh_, options_);
      pass.executed.add(before, -1);
      schedules.push_back(step_schedule(model_.module()));
    }
    update();
  }

  [[nodiscard]] MemoryPeak take_peak() { return tracker_->take_peak(); }

 private:
  static std::unique_ptr<MemoryTracker> counting_meta() {
    auto tracker = std::make_unique<MemoryTracker>();
    tracker->count_meta();
    return tracker;
  }

  void run(Microbatch microbatch) {
    set_is_last_backward(model_.module(), microbatch == Microbatch::Only ||
                                              microbatch == Microbatch::Last);
    const MemoryPhaseScope forward(*tracker_, MemoryPhase::Forward);
    const at::Tensor loss =
        model_.loss(tokens_, tokens_, static_cast<double>(tokens_.numel()))
            .loss;
    const MemoryPhaseScope backward(*tracker_, MemoryPhase::Backward);
    loss.backward();
  }

  void update() {
    const MemoryPhaseScope phase(*tracker_, MemoryPhase::Optimizer);
    if (stepper_) {
      (void)stepper_->end_step();
      return;
    }
    (void)reduced_grad_norm(model_.module());
    optimizer_.step();
    optimizer_.zero_grad();
  }

  FsdpOptions options_;
  DeviceMesh mesh_;
  std::unique_ptr<MemoryTracker> tracker_;  // before what it counts
  TrainingModel model_;
  AdamW optimizer_;
  std::unique_ptr<StepInBackward> stepper_;
  at::Tensor tokens_;  // [batch_size, seq_len] on meta
};

void check(const TrainConfig& config, int num_ranks, int rank) {
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    throw std::invalid_argument(
        fmt::format("[dry_run] rank {} of {}: ranks count from 0 and there is "
                    "at least one.",
                    rank, num_ranks));
  }
  if (config.memory.offload != "none" || config.memory.offload_activations) {
    throw std::invalid_argument(
        "[dry_run] memory.offload or memory.offload_activations is set, but "
        "what is offloaded passes through real memory. Set "
        "memory.offload=none and memory.offload_activations=false: collectives "
        "are the same, and `accordion plan --schedule` says what offload "
        "saves.");
  }
}

}  // namespace

DryRun dry_run(const TrainConfig& given, int num_ranks, int rank) {
  check(given, num_ranks, rank);
  const auto start = std::chrono::steady_clock::now();
  const Rendezvous rendezvous{
      .rank = rank, .world_size = num_ranks, .local_world_size = num_ranks};
  const std::vector<MeshAxis> axes = mesh_axes(given, rendezvous);
  const LlamaConfig shape = open_model_config(given);
  TrainConfig config = with_checkpointing(given, shape, axes);
  config.model.init.clear();  // there are no values to fill in
  const FsdpOptions options = fsdp_options(config);
  const DeviceMesh mesh =
      DeviceMesh::connect(rendezvous, {.backend = "meta", .axes = axes});
  DryRun result{.rank = rank,
                .world_size = num_ranks,
                .parameters = shape.numel(),
                .passes = passes_of(config.train.grad_accumulation)};
  std::vector<StepSchedule> schedules;
  {
    DrySteps steps(config, shape, mesh);
    for (int step = 0; step < kSteps; ++step) {
      steps.take(result.passes, schedules);
    }
    result.executed = steps.take_peak().each();
  }
  for (std::size_t i = 0; i < result.passes.size(); ++i) {
    DryPass& pass = result.passes[i];
    const StepSchedule planned =
        planned_schedule(shape, options, axes, kSharesMemory, pass.microbatch);
    pass.same_schedule = planned == schedules[i];
    pass.planned = planned_collectives(shape, options, axes, pass.microbatch);
    pass.planned.add(
        planned_norms(planned, config,
                      options.strategy == Strategy::NoShard
                          ? 1
                          : mesh.communicator("shard").world_size()),
        1);
  }
  result.planned = estimated_memory(shape, config, axes, kSharesMemory);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

}  // namespace accordion
