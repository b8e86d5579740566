// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/checkpoint_error.h"
#include "accordion/checkpoint/durable_file.h"

namespace accordion {
namespace {

using Json = nlohmann::ordered_json;

/// Times, rates and sizes do not need 17 digits; losses and norms do.
double hundredths(double value) {
  return std::round(value * 100.0) / 100.0;
}

double mebibytes(std::int64_t bytes) {
  return hundredths(static_cast<double>(bytes) / (1 << 20));
}

/// What was held when it was most, kind by kind, and the totals of the phases.
Json to_json(const MemoryPeak& peak) {
  const MemoryByKind& highest = peak.highest();
  Json json = {{"phase", to_string(peak.phase())},
               {"total", mebibytes(highest.total())}};
  for (const MemoryKind& kind : kMemoryKinds) {
    json[kind.name] = mebibytes(highest.*kind.bytes);
  }
  Json& phases = json["by_phase"];
  for (int i = 0; i < kNumMemoryPhases; ++i) {
    const auto phase = static_cast<MemoryPhase>(i);
    phases[to_string(phase)] = mebibytes(peak.of(phase).total());
  }
  return json;
}

/// Writes a text and removes from it what was written; errno, or 0 for all.
int write_front(int file, std::string& text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.erase(0, static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return 0;
}

}  // namespace

void keep_metrics_before(const std::filesystem::path& file, std::int64_t step) {
  std::ifstream stream(file);
  if (!stream) {
    return;
  }
  std::string kept;
  std::string line;
  while (std::getline(stream, line)) {
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object() && object.contains("step") &&
        object["step"].is_number_integer() &&
        object["step"].get<std::int64_t>() < step) {
      kept += line + "\n";
    }
  }
  if (stream.bad()) {
    throw CheckpointError(fmt::format(
        "[train] '{}' cannot be read to its end, so nothing of it is removed.",
        file.string()));
  }
  replace_file(file, kept);
}

void drop_cut_off_line(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  const std::size_t last_end = text.rfind('\n');
  const std::size_t kept = last_end == std::string::npos ? 0 : last_end + 1;
  if (kept < text.size()) {
    replace_file(file, text.substr(0, kept));
  }
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file)
    : path_(file),
      file_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                   0644)) {
  if (!file_.valid()) {
    throw std::runtime_error(
        fmt::format("[MetricsWriter] Cannot write '{}'. Check run.dir and its "
                    "permissions.",
                    file.string()));
  }
}

void MetricsWriter::write(const StepMetrics& metrics) {
  Json line = {{"step", metrics.step},
               {"epoch", metrics.epoch},
               {"loss", metrics.loss},
               {"grad_norm", metrics.grad_norm},
               {"lr", metrics.lr},
               {"ms", hundredths(metrics.ms)},
               {"tokens_per_s", hundredths(metrics.tokens_per_s)}};
  if (metrics.loss_scale > 0) {
    line["loss_scale"] = metrics.loss_scale;
  }
  if (metrics.skipped) {
    line["skipped"] = true;
  }
  if (const auto& offload = metrics.offload) {
    line["offload"] = {{"read_mib", hundredths(offload->read_mib)},
                       {"written_mib", hundredths(offload->written_mib)},
                       {"waited_ms", hundredths(offload->waited_ms)},
                       {"mib_per_s", hundredths(offload->mib_per_s)}};
  }
  if (metrics.memory.highest().total() > 0) {
    line["memory"] = to_json(metrics.memory);
  }
  write_line(line.dump());
}

void MetricsWriter::write(const ValidationMetrics& metrics) {
  write_line(Json{{"step", metrics.step},
                  {"val_loss", metrics.loss},
                  {"val_accuracy", metrics.accuracy}}
                 .dump());
}

void MetricsWriter::write(const RunSummary& summary) {
  Json line = {{"summary", true},
               {"steps", summary.steps},
               {"world", summary.world_size},
               {"final_loss", summary.final_loss},
               {"step_ms_median", hundredths(summary.step_ms_median)},
               {"tokens_per_s", hundredths(summary.tokens_per_s)}};
  if (summary.skipped_steps > 0) {
    line["skipped_steps"] = summary.skipped_steps;
  }
  if (summary.validation) {
    line["val_loss"] = summary.validation->loss;
    line["val_accuracy"] = summary.validation->accuracy;
  }
  for (const MemoryUse& memory : summary.memory) {
    line["rss_mib"].push_back(hundredths(memory.rss_mib));
    line["pss_mib"].push_back(hundredths(memory.pss_mib));
  }
  for (const RankMemory& rank : summary.held) {
    Json memory = to_json(rank.peak);
    memory["outside"] = hundredths(rank.outside_mib);
    line["memory"].push_back(std::move(memory));
  }
  if (summary.interrupted) {
    line["interrupted"] = true;
  }
  write_line(line.dump());
  require_written();
}

void MetricsWriter::sync() {
  require_written();
  sync_file(path_);
}

void MetricsWriter::write_line(const std::string& line) {
  const std::lock_guard lock(mutex_);
  waiting_ += line + "\n";
  (void)write_front(file_.get(), waiting_);
}

void MetricsWriter::require_written() {
  const std::lock_guard lock(mutex_);
  if (const int error = write_front(file_.get(), waiting_); error != 0) {
    throw std::runtime_error(fmt::format(
        "[MetricsWriter] Writing '{}' failed: {}. {} lines wait until they can "
        "be written: make room, or check its permissions.",
        path_.string(), std::strerror(error),
        std::ranges::count(waiting_, '\n')));
  }
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0.0;
  }
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace accordion
