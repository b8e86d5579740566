// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "accordion/train/metrics.h"
#include "accordion/train/progress.h"
#include "accordion/train/run_folder.h"

namespace accordion {

struct RunReportOptions {
  std::filesystem::path folder;
  int rank = 0;
  std::int64_t log_every = 10;
  std::FILE* out = stdout;  ///< where rank 0 tells a person how it goes
};

/// Everything a rank tells about a run: each rank writes its log; rank 0 also
/// metrics.jsonl and the progress.
class RunReport {
 public:
  /// Throws std::runtime_error when the run folder cannot be written
  explicit RunReport(const RunReportOptions& options);

  void step(const StepMetrics& metrics, const ProgressInfo& info);
  void validation(const ValidationMetrics& metrics);
  void summary(const RunSummary& summary);
  /// Forgets what was measured from a step on: it will be measured again.
  void forget_from(std::int64_t step);
  /// Waits until what was measured is on the disk, so that no checkpoint of a
  /// step is there without the lines of the steps before.
  void sync();
  /// A line for the person at the terminal; nothing on other ranks.
  void note(const std::string& line);
  /// A line for this rank's log.
  void log(std::string_view line) { log_.line(line); }

 private:
  std::filesystem::path folder_;
  std::int64_t log_every_;
  RankLog log_;
  // Rank 0 only.
  std::optional<MetricsWriter> metrics_;
  std::optional<Progress> progress_;
};

}  // namespace accordion
