// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/models/llama_config.h"
#include "accordion/optim/adamw.h"
#include "accordion/train/lr_schedule.h"
#include "accordion/train/memory_use.h"
#include "accordion/train/run_data.h"
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
  /// Whether the optimizer took the step, and if not, why.
  StepGuard::Judgement judgement = {};
};

/// Takes the steps of a run, as one of its ranks: batches, loss, backward,
/// clipping, optimizer. `config` and `data` outlive it.
class TrainingStep {
 public:
  /// Throws what TrainingModel throws
  /// Comm   that of fully_shard
  TrainingStep(const TrainConfig& config, const DeviceMesh& mesh,
               const LlamaConfig& model, const RunData& data);

  /// Step number `step`, `elapsed_seconds` after the run began.
  ///
  /// Throws std::runtime_error for a gradient that is not finite or a loss too
  ///        large, as train.nonfinite and train.spike say; CommError
  LocalStep run(std::int64_t step, double elapsed_seconds);

  /// Records the steps that follow: where the executor and this loop spend
  /// their time. Null ends it.
  void set_trace(std::shared_ptr<StepTrace> trace);
  /// Looks at memory no more: reading shared pages' use takes milliseconds.
  void stop_memory_samples() { samples_memory_ = false; }

  [[nodiscard]] TrainingModel& model() { return model_; }
  [[nodiscard]] AdamW& optimizer() { return optimizer_; }
  [[nodiscard]] StepGuard& guard() { return guard_; }
  /// Sampled where the peaks are: behind forward, backward and optimizer.
  [[nodiscard]] MemoryPeaks& memory() { return memory_; }

 private:
  void backward_of_microbatches(std::int64_t step, LocalStep& result);
  void update(std::int64_t step, LocalStep& result);
  [[nodiscard]] std::vector<Batch> batches_of(std::int64_t step) const;
  [[nodiscard]] double loss_of_all_ranks(const LocalStep& result);
  [[nodiscard]] std::string describe_nonfinite(std::int64_t step);
  double targets_per_rank(const std::vector<Batch>& batches);
  void sample_memory(std::int64_t step);

  const TrainConfig& config_;
  const RunData& data_;
  Communicator& world_;
  TrainingModel model_;
  AdamW optimizer_;
  LrSchedule schedule_;
  StepGuard guard_;
  MemoryPeaks memory_;
  bool samples_memory_ = true;
  std::shared_ptr<StepTrace> trace_;
};

}  // namespace accordion
