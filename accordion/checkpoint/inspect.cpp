// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/inspect.h"

#include <chrono>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accordion/checkpoint/tensor_cursor.h"

namespace accordion {
namespace {

std::string kind_of(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? "weights" : name.substr(0, slash);
}

[[noreturn]] void fail_without(const std::string& name,
                               const TensorSource& source) {
  constexpr std::size_t kMaxNear = 3;
  std::vector<std::string> near;
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name.find(name) != std::string::npos && near.size() < kMaxNear) {
      near.push_back("'" + tensor.name + "'");
    }
  }
  throw CheckpointError(fmt::format(
      "[inspect] '{}' holds no tensor '{}'. {}Without a name all are listed.",
      source.path().string(), name,
      near.empty()
          ? ""
          : fmt::format("Did you mean {}? ", fmt::join(near, " or "))));
}

/// The tensors that were asked for.
std::vector<TensorInfo> chosen(const TensorSource& source,
                               const std::string& name) {
  if (name.empty()) {
    return source.tensors();
  }
  for (const std::string& full : {name, "model/" + name}) {
    if (const TensorInfo* found = source.find(full)) {
      return {*found};
    }
  }
  fail_without(name, source);
}

std::vector<std::string> aliases_of(const TensorSource& source,
                                    const TensorInfo& tensor) {
  std::vector<std::string> names;
  if (const CheckpointReader* reader = source.checkpoint()) {
    for (const auto& [alias, stored] : reader->index().aliases) {
      if ("model/" + stored == tensor.name) {
        names.push_back("model/" + alias);
      }
    }
  }
  return names;
}

/// A number of steps: "step", or a name that ends in "/step".
std::optional<std::int64_t> step_of(const CheckpointValues& values) {
  for (const auto& [name, value] : values) {
    if ((name == "step" || name.ends_with("/step")) &&
        std::holds_alternative<std::int64_t>(value)) {
      return std::get<std::int64_t>(value);
    }
  }
  return std::nullopt;
}

void describe(const CheckpointIndex& index, InspectReport& report) {
  report.is_checkpoint = true;
  report.world_size = index.world_size;
  report.values = index.values;
  report.step = step_of(index.values);
  for (const CheckpointFile& file : index.files) {
    report.files.push_back(
        {file.name, file.bytes, rank_of_shard(file.name, index.world_size)});
  }
}

void describe(const WeightSource& weights, InspectReport& report) {
  for (const SafetensorsFile& file : weights.files()) {
    std::error_code ignored;
    report.files.push_back(
        {file.path().filename().string(),
         static_cast<std::int64_t>(
             std::filesystem::file_size(file.path(), ignored)),
         std::nullopt});
    report.values.insert(file.metadata().begin(), file.metadata().end());
  }
}

/// Reads all, or what there is of one tensor; a wrong checksum throws.
Verification verify(TensorSource& source, const std::vector<TensorInfo>* only) {
  CheckpointReader& reader = *source.checkpoint();
  const auto start = std::chrono::steady_clock::now();
  if (only == nullptr) {
    reader.verify();
  } else {
    for (const TensorInfo& tensor : *only) {
      TensorCursor cursor(source, tensor);
      while (cursor.next()) {
      }
    }
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  return {reader.bytes_read(), time.count()};
}

}  // namespace

InspectReport inspect(TensorSource& source, const InspectOptions& options) {
  const std::vector<TensorInfo> tensors = chosen(source, options.tensor);
  InspectReport report;
  report.path = source.path().string();
  report.newest_of = source.newest_of();
  report.with_statistics = options.with_statistics;
  if (const CheckpointReader* reader = source.checkpoint()) {
    describe(reader->index(), report);
    if (options.verify) {
      report.verified =
          verify(source, options.tensor.empty() ? nullptr : &tensors);
    }
  } else {
    describe(*source.weights(), report);
  }
  for (const TensorInfo& tensor : source.tensors()) {
    KindTotal& total = report.totals[kind_of(tensor.name)];
    ++total.tensors;
    total.numel += tensor.numel;
    total.bytes += tensor.bytes;
  }
  for (const TensorInfo& tensor : tensors) {
    report.tensors.push_back({.info = tensor,
                              .aliases = aliases_of(source, tensor),
                              .pieces = source.pieces(tensor),
                              .statistics = options.with_statistics
                                                ? statistics(source, tensor)
                                                : std::nullopt});
  }
  return report;
}

}  // namespace accordion
