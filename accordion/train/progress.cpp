// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace accordion {
namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);
constexpr const char* kEraseLine = "\r\x1b[K";

/// 950, 14.2k, 1.31M
std::string short_count(double value) {
  if (value < 1e3) {
    return fmt::format("{:.0f}", value);
  }
  return value < 1e6 ? fmt::format("{:.1f}k", value / 1e3)
                     : fmt::format("{:.2f}M", value / 1e6);
}

/// 0:07, 2:03, 1:02:03
std::string clock_time(double seconds) {
  const auto total =
      static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  const std::int64_t hours = total / 3600;
  const std::int64_t minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{}:{:02}", minutes, total % 60);
}

double mebibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

/// Columns of the terminal; a longer line would wrap and could not be erased.
std::size_t columns(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 0 ? size.ws_col : 80;
}

std::string skipped_text(const StepMetrics& metrics) {
  if (!metrics.skipped) {
    return {};
  }
  return metrics.loss_scale > 0
             ? fmt::format(" skipped at loss scale {}", metrics.loss_scale)
             : " skipped";
}

}  // namespace

std::string progress_line(const StepMetrics& metrics,
                          const ProgressInfo& info) {
  const std::string total =
      info.total_steps > 0 ? fmt::format("/{}", info.total_steps) : "";
  return fmt::format(
      "step {}{}{}  loss {:.4f}  {} tokens/s  {:.0f}/{:.0f} MiB  {} left",
      metrics.step + 1, total, skipped_text(metrics), metrics.loss,
      short_count(metrics.tokens_per_s), mebibytes(info.held_bytes),
      mebibytes(info.peak_bytes), clock_time(info.seconds_left));
}

void Progress::step(const StepMetrics& metrics, const ProgressInfo& info) {
  if (!options_.live) {
    if ((metrics.step + 1) % options_.every == 0) {
      note(progress_line(metrics, info));
    }
    return;
  }
  pending_ = progress_line(metrics, info);
  const auto now = std::chrono::steady_clock::now();
  if (!on_screen_ || now - last_shown_ >= kRefresh) {
    last_shown_ = now;
    show(pending_);
  }
}

void Progress::show(const std::string& line) {
  const auto shown = line.substr(0, columns(options_.out) - 1);
  fmt::print(options_.out, "{}{}", kEraseLine, shown);
  std::fflush(options_.out);
  on_screen_ = true;
}

void Progress::note(const std::string& line) {
  if (on_screen_) {
    fmt::print(options_.out, "{}", kEraseLine);
  }
  fmt::print(options_.out, "{}\n", line);
  std::fflush(options_.out);
  if (on_screen_) {
    show(pending_);
  }
}

void Progress::finish() {
  if (!on_screen_) {
    return;
  }
  show(pending_);
  fmt::print(options_.out, "\n");
  std::fflush(options_.out);
  on_screen_ = false;
}

}  // namespace accordion
