// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_report.h"

#include <unistd.h>

#include <fmt/format.h>

namespace accordion {

RunReport::RunReport(const RunReportOptions& options)
    : folder_(options.folder),
      log_every_(options.log_every),
      log_(options.folder, options.rank) {
  if (options.rank == 0) {
    metrics_.emplace(metrics_file(options.folder));
    progress_.emplace(
        ProgressOptions{.out = options.out,
                        .live = ::isatty(::fileno(options.out)) == 1,
                        .every = options.log_every});
  }
}

void RunReport::step(const StepMetrics& metrics, const ProgressInfo& info) {
  if ((metrics.step + 1) % log_every_ == 0) {
    log_.line(fmt::format("step {}: {:.2f} ms, {:.1f} MiB resident",
                          metrics.step, metrics.ms, info.rss_mib));
  }
  if (metrics_) {
    metrics_->write(metrics);
    progress_->step(metrics, info);
  }
}

void RunReport::validation(const ValidationMetrics& metrics) {
  if (metrics_) {
    metrics_->write(metrics);
    note(
        fmt::format("step {}  held-out text: {:.4f} nats per token, {:.1f} % "
                    "of tokens right",
                    metrics.step + 1, metrics.loss, metrics.accuracy * 100));
  }
}

void RunReport::summary(const RunSummary& summary) {
  const std::string line = fmt::format(
      "{}{} steps{}, loss {:.4f}, {:.1f} ms a step, {:.0f} tokens/s",
      summary.interrupted ? "stopped by a signal after " : "", summary.steps,
      summary.skipped_steps > 0
          ? fmt::format(", {} of them skipped", summary.skipped_steps)
          : "",
      summary.final_loss, summary.step_ms_median, summary.tokens_per_s);
  log_.line(line);
  if (metrics_) {
    metrics_->write(summary);
    progress_->finish();
    note(line);
  }
}

void RunReport::forget_from(std::int64_t step) {
  if (metrics_) {
    metrics_.reset();
    keep_metrics_before(metrics_file(folder_), step);
    metrics_.emplace(metrics_file(folder_));
  }
}

void RunReport::sync() {
  if (metrics_) {
    metrics_->sync();
  }
}

void RunReport::note(const std::string& line) {
  if (progress_) {
    progress_->note(line);
  }
}

}  // namespace accordion
