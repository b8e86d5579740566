// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "accordion/comm/device_mesh.h"
#include "accordion/optim/adamw.h"
#include "accordion/train/lr_schedule.h"
#include "accordion/train/memory_use.h"
#include "accordion/train/metrics.h"
#include "accordion/train/nonfinite_guard.h"
#include "accordion/train/run_data.h"
#include "accordion/train/run_report.h"
#include "accordion/train/stop_signal.h"
#include "accordion/train/train_config.h"
#include "accordion/train/training_model.h"

namespace accordion {

/// What one rank knows of a step before the ranks compare notes.
struct LocalStep {
  double loss = 0.0;  ///< this rank's part of the mean, times the ranks
  double grad_norm = 0.0;
  double lr = 0.0;
  double ms = 0.0;
  bool skipped = false;
};

/// One rank's part in a run, from the first step to the summary.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const DeviceMesh& mesh,
              const LlamaConfig& model, const Tokenizer& tokenizer,
              RunData data, const std::filesystem::path& folder);

  RunSummary execute();

 private:
  LocalStep step(std::int64_t step);
  void backward_of_microbatches(std::int64_t step, LocalStep& result);
  [[nodiscard]] std::vector<Batch> batches_of(std::int64_t step) const;
  double targets_per_rank(const std::vector<Batch>& batches);
  void sample_memory(std::int64_t step);
  StepMetrics agree(std::int64_t step, const LocalStep& local);
  [[nodiscard]] double seconds_left(std::int64_t step) const;
  [[nodiscard]] bool finished(std::int64_t next_step) const;
  void validate(std::int64_t step);
  RunSummary summarize();
  void print_sample();

  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  Communicator& world_;
  RunData data_;
  std::filesystem::path folder_;
  RunReport report_;
  TrainingModel model_;
  AdamW optimizer_;
  LrSchedule schedule_;
  NonfiniteGuard nonfinite_;
  MemoryPeaks memory_;
  StopSignal stop_;

  std::chrono::steady_clock::time_point start_;
  double elapsed_seconds_ = 0.0;  // rank 0's clock, after the last step
  bool stopped_ = false;          // a rank was told to end
  std::int64_t steps_done_ = 0;
  double last_loss_ = 0.0;
  std::vector<double> step_ms_;
  std::optional<ValidationMetrics> last_validation_;
};

}  // namespace accordion
