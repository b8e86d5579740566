// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_index.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checkpoint_index_format.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const CheckpointFile& file) {
  Json checksums = Json::array();
  for (const std::uint64_t checksum : file.checksums) {
    checksums.push_back(checksum_text(checksum));
  }
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"xxh3_64", std::move(checksums)}};
}

Json to_json(const StoredTensor& tensor) {
  Json ranges = Json::array();
  for (const StoredRange& range : tensor.ranges) {
    ranges.push_back({range.file, range.begin, range.end, range.offset});
  }
  return {{"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"ranges", std::move(ranges)}};
}

/// A value, behind its name if it has one.
std::string line_of(const std::string* name, const Json& value) {
  const std::string what = name != nullptr     ? *name
                           : value.is_object() ? value.value("name", "")
                                               : "";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    throw CheckpointError(
        fmt::format("[save_checkpoint] value '{}' is {}; only finite numbers "
                    "can be saved.",
                    what, value.get<double>()));
  }
  try {
    return (name != nullptr ? "  " + Json(*name).dump() + ": " : "  ") +
           value.dump();
  } catch (const Json::exception& error) {
    throw CheckpointError(fmt::format(
        "[save_checkpoint] '{}' cannot be saved: it is no text in UTF-8 ({}).",
        what, error.what()));
  }
}

/// `container` with a line for each of its elements, which keeps an index of
/// many tensors readable and searchable.
std::string in_lines(const Json& container) {
  const bool is_object = container.is_object();
  std::string text = is_object ? "{" : "[";
  const char* separator = "\n";
  for (const auto& [key, value] : container.items()) {
    text += separator;
    text += line_of(is_object ? &key : nullptr, value);
    separator = ",\n";
  }
  return text + (is_object ? "\n }" : "\n ]");
}

}  // namespace

std::int64_t StoredTensor::numel() const {
  return detail::numel_of(shape);
}

std::int64_t CheckpointIndex::integer(std::string_view name,
                                      const std::string& place) const {
  const auto found = values.find(name);
  if (found == values.end() ||
      !std::holds_alternative<std::int64_t>(found->second)) {
    throw CheckpointError(fmt::format(
        "[checkpoint] '{}' has no integer '{}'. Was it saved by `accordion "
        "train`?",
        place, name));
  }
  return std::get<std::int64_t>(found->second);
}

std::string to_text(const CheckpointIndex& index) {
  Json values = Json::object();
  for (const auto& [name, value] : index.values) {
    Json& entry = values[name];
    std::visit([&entry](const auto& content) { entry = content; }, value);
  }
  Json files = Json::array();
  for (const CheckpointFile& file : index.files) {
    files.push_back(to_json(file));
  }
  Json tensors = Json::object();
  for (const auto& [name, tensor] : index.tensors) {
    tensors[name] = to_json(tensor);
  }
  std::string text = fmt::format(
      "{{\n"
      " \"format\": \"{}\",\n"
      " \"version\": {},\n"
      " \"world_size\": {},\n"
      " \"values\": {},\n"
      " \"aliases\": {},\n"
      " \"files\": {},\n"
      " \"tensors\": {},\n",
      detail::kIndexFormat, detail::kIndexVersion, index.world_size,
      in_lines(values), in_lines(Json(index.aliases)), in_lines(files),
      in_lines(tensors));
  text +=
      fmt::format("{}{}\"\n}}\n", detail::kChecksumLine,
                  checksum_text(checksum_of(std::as_bytes(std::span(text)))));
  return text;
}

}  // namespace accordion
