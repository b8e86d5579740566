// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "accordion/train/metrics.h"

namespace accordion {

/// What the progress line says besides the step's metrics.
struct ProgressInfo {
  std::int64_t total_steps = 0;  ///< 0: unknown
  double rss_mib = 0.0;          ///< resident, for the log of the rank
  std::int64_t held_bytes = 0;   ///< of memory, after the step
  std::int64_t peak_bytes = 0;   ///< of the run so far
  double seconds_left = 0.0;
};

/// "step 12/100  loss 1.8320  14.2k tokens/s  112/212 MiB  2:03 left", with the
/// memory that is held now and was at most, on rank 0.
std::string progress_line(const StepMetrics& metrics, const ProgressInfo& info);

struct ProgressOptions {
  std::FILE* out = stdout;
  /// One line, rewritten in place; false: a line every `every` steps.
  bool live = false;
  std::int64_t every = 10;
};

/// Tells a person how a run goes.
///
/// On a terminal the last line is rewritten at most ten times a second;
/// anywhere else lines are only ever added. Other output of the run goes
/// through note(), which keeps the two apart.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  void step(const StepMetrics& metrics, const ProgressInfo& info);
  /// Prints a line of its own.
  void note(const std::string& line);
  /// Leaves the last progress line standing.
  void finish();

 private:
  void show(const std::string& line);

  ProgressOptions options_;
  std::string pending_;  // last line, shown or not
  bool on_screen_ = false;
  std::chrono::steady_clock::time_point last_shown_{};
};

}  // namespace accordion
