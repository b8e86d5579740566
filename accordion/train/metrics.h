// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "accordion/comm/shm/file_descriptor.h"
#include "accordion/schedule/memory_by_kind.h"
#include "accordion/train/memory_use.h"
#include "accordion/train/rank_memory.h"

namespace accordion {

/// What offloading moved in a step.
struct OffloadMetrics {
  double read_mib = 0.0;     ///< of all ranks together
  double written_mib = 0.0;  ///< the same
  double waited_ms = 0.0;    ///< for it, mean of the ranks
  /// At which a rank moved bytes while it moved any, mean of the ranks.
  double mib_per_s = 0.0;
};

/// What is known of a step after it.
struct StepMetrics {
  std::int64_t step = 0;   ///< counted from 0
  double epoch = 0.0;      ///< times the data was read before the step
  double loss = 0.0;       ///< mean over the tokens of all ranks, in nats
  double grad_norm = 0.0;  ///< of the global gradient, before clipping
  double lr = 0.0;
  double ms = 0.0;  ///< fetching the batch to the end of the optimizer
  double tokens_per_s = 0.0;  ///< of all ranks together
  bool skipped = false;       ///< the optimizer did not take the step
  double loss_scale = 0.0;    ///< of fp16; 0: none
  std::optional<OffloadMetrics> offload = std::nullopt;
  MemoryPeak memory = {};  ///< of rank 0 in the step
};

/// A measurement on held-out text.
struct ValidationMetrics {
  std::int64_t step = 0;  ///< the last one before it
  double loss = 0.0;      ///< nats per token
  double accuracy = 0.0;  ///< part of tokens whose likeliest guess is right
};

/// A whole run, in one line.
struct RunSummary {
  std::int64_t steps = 0;
  int world_size = 1;
  double final_loss = 0.0;  ///< of the last step
  std::int64_t skipped_steps = 0;
  double step_ms_median = 0.0;
  double tokens_per_s = 0.0;                    ///< at the median
  std::optional<ValidationMetrics> validation;  ///< the last one
  std::vector<MemoryUse> memory;                ///< peaks, per rank
  std::vector<RankMemory> held;                 ///< per rank; may be empty
  bool interrupted = false;  ///< a signal ended the run early
};

/// Leaves in a metrics file what belongs to steps before `step`: what a run
/// that is resumed there measures again goes, and so do its summary and a last
/// line that was cut off. Nothing where there is no such file.
///
/// Throws CheckpointError when it cannot be rewritten
void keep_metrics_before(const std::filesystem::path& file, std::int64_t step);

/// Removes a last line of a metrics file that was cut off, and nothing else.
///
/// Throws CheckpointError when it cannot be rewritten
void drop_cut_off_line(const std::filesystem::path& file);

/// Writes metrics.jsonl: one JSON object a line, written line by line so that a
/// run can be watched and one that dies leaves all it measured. Lines follow
/// those that are there.
///
/// A full disk ends no run: lines that cannot be written wait for the next one.
///
/// Threads  sync() on any, the rest on one
class MetricsWriter {
 public:
  /// Throws std::runtime_error that names the file when it cannot be opened
  explicit MetricsWriter(const std::filesystem::path& file);

  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);
  /// The last line. Throws as sync().
  void write(const RunSummary& summary);
  /// Waits until the lines are on the disk.
  ///
  /// Throws std::runtime_error where they cannot be written
  void sync();

 private:
  void write_line(const std::string& line);
  void require_written();

  std::filesystem::path path_;
  detail::FileDescriptor file_;
  std::mutex mutex_;
  std::string waiting_;  // what is not written yet
};

/// The middle value, or the mean of the middle two; 0 of nothing.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace accordion
