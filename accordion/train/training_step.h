// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/memory_tracker.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/models/llama_config.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/grad_scaler.h"
#include "accordion/optim/step_in_backward.h"
#include "accordion/train/lr_schedule.h"
#include "accordion/train/memory_use.h"
#include "accordion/train/offloaded_run.h"
#include "accordion/train/run_data.h"
#include "accordion/train/run_position.h"
#include "accordion/train/step_guard.h"
#include "accordion/train/train_config.h"
#include "accordion/train/training_model.h"

namespace accordion {

/// What one rank knows of a step before the ranks compare notes.
struct LocalStep {
  double loss = 0.0;  ///< this rank's part of the mean, times the ranks
  double grad_norm = 0.0;
  double lr = 0.0;
  double ms = 0.0;
  double loss_scale = 0.0;  ///< what the loss was multiplied by; 0: none
  /// Whether the optimizer took the step, and if not, why.
  StepGuard::Judgement judgement = {};
  /// What this rank offloaded; unset where nothing is.
  std::optional<OffloadCounters> offload = std::nullopt;
  MemoryPeak memory = {};  ///< what this rank held at most
};

/// Takes the steps of a run, as one of its ranks: batches, loss, backward,
/// clipping, optimizer. `config` and `data` outlive it.
class TrainingStep {
 public:
  /// Throws what TrainingModel throws; MemoryError where memory.limit is less
  ///        than what is held before the first step
  /// Comm   that of fully_shard
  TrainingStep(const TrainConfig& config, const DeviceMesh& mesh,
               const LlamaConfig& model, const RunData& data);

  /// Step number `step`, `elapsed_seconds` after the run began.
  ///
  /// Throws std::runtime_error for a gradient that is not finite or a loss too
  ///        large, as train.nonfinite and train.spike say; MemoryError that
  ///        names what would save memory; CommError
  LocalStep run(std::int64_t step, double elapsed_seconds);

  /// Records the steps that follow: where the executor and this loop spend
  /// their time. Null ends it.
  void set_trace(std::shared_ptr<StepTrace> trace);
  /// Goes on as after the step before `position`.
  void continue_from(const RunPosition& position);
  /// Adds to a position what continue_from takes from it.
  void add_to(RunPosition& position) const;
  /// Looks at memory no more: reading shared pages' use takes milliseconds.
  void stop_memory_samples() { samples_memory_ = false; }

  [[nodiscard]] TrainingModel& model() { return model_; }
  [[nodiscard]] AdamW& optimizer() { return optimizer_; }
  [[nodiscard]] OffloadedRun& offloaded() { return offloaded_; }
  [[nodiscard]] StepGuard& guard() { return guard_; }
  /// Sampled where the peaks are: behind forward, backward and optimizer.
  [[nodiscard]] MemoryPeaks& memory() { return memory_; }
  /// What the memory is held for.
  [[nodiscard]] MemoryTracker& tracker() { return tracker_; }

 private:
  void watch_memory();
  LocalStep take(std::int64_t step, double elapsed_seconds);
  [[nodiscard]] MemoryError with_advice(const MemoryError::Facts& facts) const;
  void backward_of_microbatches(std::int64_t step, LocalStep& result);
  void update(std::int64_t step, LocalStep& result);
  [[nodiscard]] StepGuard::Judgement judge(std::int64_t step,
                                           const LocalStep& result);
  [[nodiscard]] StepGuard::Judgement skip_overflow(std::int64_t step);
  [[nodiscard]] std::vector<Batch> batches_of(std::int64_t step) const;
  [[nodiscard]] double loss_of_all_ranks(const LocalStep& result);
  [[nodiscard]] std::string describe_nonfinite(std::int64_t step);
  double grad_norm();
  double targets_per_rank(const std::vector<Batch>& batches);
  void sample_memory(std::int64_t step);

  const TrainConfig& config_;
  const RunData& data_;
  DeviceMesh mesh_;
  Communicator& world_;
  LlamaConfig shape_;
  MemoryTracker tracker_;  // before what it counts
  TrainingModel model_;
  AdamW optimizer_;
  std::unique_ptr<StepInBackward> stepper_;  // with optimizer_in_backward
  std::optional<std::string> left_out_;      // by it in this step
  std::optional<GradScaler> scaler_;
  OffloadedRun offloaded_;
  LrSchedule schedule_;
  StepGuard guard_;
  MemoryPeaks memory_;
  bool samples_memory_ = true;
  std::shared_ptr<StepTrace> trace_;
};

}  // namespace accordion
