// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "accordion/comm/device_mesh.h"
#include "accordion/train/metrics.h"
#include "accordion/train/run_checkpoints.h"
#include "accordion/train/run_data.h"
#include "accordion/train/run_report.h"
#include "accordion/train/run_start.h"
#include "accordion/train/stop_signal.h"
#include "accordion/train/train_config.h"
#include "accordion/train/training_step.h"

namespace accordion {

/// One rank's part in a run, from the first step to the summary.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const DeviceMesh& mesh,
              const LlamaConfig& model, const Tokenizer& tokenizer,
              RunData data, const RunStart& start);

  RunSummary execute();

 private:
  void take_steps();
  void go_on_from(const RunPosition& position);
  std::int64_t roll_back(std::int64_t step, const std::string& fault);
  void log_failure(const std::exception& error);
  [[nodiscard]] RunPosition position_after(std::int64_t step);
  StepMetrics agree(std::int64_t step, const LocalStep& local);
  [[nodiscard]] double seconds_left(std::int64_t step) const;
  [[nodiscard]] bool finished(std::int64_t next_step) const;
  void validate(std::int64_t step);
  RunSummary summarize();
  RankMemory held();
  void print_sample();

  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  Communicator& world_;
  RunData data_;
  std::filesystem::path folder_;
  RunReport report_;
  TrainingStep step_;
  std::shared_ptr<StepTrace> trace_;  // of the last step, for errors
  RunCheckpoints checkpoints_;
  StopSignal stop_;

  std::chrono::steady_clock::time_point start_;
  double elapsed_before_ = 0.0;   // of the run, before it was resumed
  double elapsed_seconds_ = 0.0;  // with rank 0's clock, after the last step
  bool stopped_ = false;          // a rank was told to end
  std::int64_t first_step_ = 0;
  std::int64_t steps_done_ = 0;
  std::int64_t skipped_steps_ = 0;
  double last_loss_ = 0.0;
  std::vector<double> step_ms_;
  std::optional<ValidationMetrics> last_validation_;
};

}  // namespace accordion
