// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/shard_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/durable_file.h"
#include "accordion/checkpoint/safetensors_writer.h"

namespace accordion {
namespace {

using nlohmann::json;

/// [rows, …] where the range begins and ends at rows of dim 0, else flat.
std::vector<std::int64_t> local_shape(const TensorRange& range) {
  const std::int64_t numel = range.end - range.begin;
  std::int64_t row = 1;
  for (std::size_t dim = 1; dim < range.shape.size(); ++dim) {
    row *= range.shape[dim];
  }
  if (range.shape.empty() || row == 0) {
    return numel == 1 && range.shape.empty() ? range.shape : std::vector{numel};
  }
  if (range.begin % row != 0 || numel % row != 0) {
    return {numel};
  }
  std::vector<std::int64_t> shape = range.shape;
  shape.front() = numel / row;
  return shape;
}

void check_complete(const std::string& name, const StoredTensor& tensor) {
  std::int64_t covered = 0;
  const auto fail = [&] {
    throw CheckpointError(fmt::format(
        "[save_checkpoint] tensor '{}' has {} elements, but what ranks wrote "
        "of it does not follow on at element {}. Nothing was committed.",
        name, tensor.numel(), covered));
  };
  for (const StoredRange& range : tensor.ranges) {
    if (range.begin != covered) {
      fail();
    }
    covered = range.end;
  }
  if (covered != tensor.numel()) {
    fail();
  }
}

/// Enters a part as a tensor, or compares it with what other ranks said.
StoredTensor& enter(CheckpointIndex& index, const ShardReport::Part& part) {
  const auto [entry, is_new] = index.tensors.try_emplace(
      part.name, StoredTensor{part.dtype, part.shape, {}});
  StoredTensor& tensor = entry->second;
  if (tensor.dtype != part.dtype || tensor.shape != part.shape) {
    throw CheckpointError(fmt::format(
        "[save_checkpoint] tensor '{}' is {} [{}] on one rank and {} [{}] on "
        "another. Nothing was committed.",
        part.name, tensor.dtype, fmt::join(tensor.shape, ", "), part.dtype,
        fmt::join(part.shape, ", ")));
  }
  return tensor;
}

}  // namespace

ShardReport write_shard(const std::filesystem::path& folder,
                        const std::string& file_name,
                        std::span<const TensorRange> ranges) {
  const std::filesystem::path path = folder / file_name;
  std::vector<TensorData> tensors;
  std::int64_t bytes = 0;
  for (const TensorRange& range : ranges) {
    tensors.push_back(
        {range.name, range.dtype, local_shape(range), range.bytes});
    bytes += static_cast<std::int64_t>(range.bytes.size());
  }
  const std::string start = safetensors_start(tensors, {}, path);
  const auto start_bytes = static_cast<std::int64_t>(start.size());
  DurableFile file(path, start_bytes + bytes);
  file.write(start);
  ShardReport report;
  std::int64_t offset = start_bytes;
  for (const TensorRange& range : ranges) {
    file.write(range.bytes);
    report.parts.push_back(
        {range.name,
         range.dtype,
         range.shape,
         {.begin = range.begin, .end = range.end, .offset = offset}});
    offset += static_cast<std::int64_t>(range.bytes.size());
  }
  WrittenFile written = file.finish();
  report.file = {file_name, written.bytes, std::move(written.checksums)};
  return report;
}

std::string to_text(const ShardReport& report) {
  json parts = json::array();
  for (const ShardReport::Part& part : report.parts) {
    parts.push_back({part.name, part.dtype, part.shape, part.range.begin,
                     part.range.end, part.range.offset});
  }
  return json({{"name", report.file.name},
               {"bytes", report.file.bytes},
               {"checksums", report.file.checksums},
               {"parts", std::move(parts)}})
      .dump();
}

ShardReport parse_shard_report(std::string_view text) {
  const json object = json::parse(text);
  ShardReport report;
  report.file = {object.at("name"), object.at("bytes"),
                 object.at("checksums").get<std::vector<std::uint64_t>>()};
  for (const json& part : object.at("parts")) {
    report.parts.push_back({part.at(0),
                            part.at(1),
                            part.at(2).get<std::vector<std::int64_t>>(),
                            {.begin = part.at(3).get<std::int64_t>(),
                             .end = part.at(4).get<std::int64_t>(),
                             .offset = part.at(5).get<std::int64_t>()}});
  }
  return report;
}

void add_shards(CheckpointIndex& index, std::span<const ShardReport> reports) {
  for (const ShardReport& report : reports) {
    const auto number = static_cast<std::int64_t>(index.files.size());
    index.files.push_back(report.file);
    for (const ShardReport::Part& part : report.parts) {
      StoredTensor& tensor = enter(index, part);
      tensor.ranges.push_back(part.range);
      tensor.ranges.back().file = number;
    }
  }
  for (auto& [name, tensor] : index.tensors) {
    std::ranges::sort(tensor.ranges, {}, [](const StoredRange& range) {
      return std::pair(range.begin, range.end);
    });
    check_complete(name, tensor);
  }
}

}  // namespace accordion
