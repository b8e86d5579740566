// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors_writer.h"

#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/durable_file.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

void check(const TensorData& tensor, std::set<std::string>& names,
           const std::filesystem::path& path) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(
        fmt::format("[write_safetensors] '{}', tensor '{}': {}.", path.string(),
                    tensor.name, what));
  };
  if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
    fail("the name is reserved or taken; give each tensor its own");
  }
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  if (element == 0) {
    fail(fmt::format("dtype '{}' is not one of the format's", tensor.dtype));
  }
  const std::int64_t expected =
      TensorEntry{.name = {}, .dtype = {}, .shape = tensor.shape}.numel() *
      element;
  if (static_cast<std::int64_t>(tensor.bytes.size()) != expected) {
    fail(fmt::format("{} [{}] has {} bytes, but {} were given", tensor.dtype,
                     fmt::join(tensor.shape, ", "), expected,
                     tensor.bytes.size()));
  }
}

}  // namespace

std::string safetensors_start(
    std::span<const TensorData> tensors,
    const std::map<std::string, std::string>& metadata,
    const std::filesystem::path& path) {
  std::set<std::string> names;
  std::vector<TensorEntry> entries;
  for (const TensorData& tensor : tensors) {
    check(tensor, names, path);
    entries.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  try {
    return detail::safetensors_start(entries, metadata);
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        fmt::format("[write_safetensors] '{}': a name or metadata is no text "
                    "in UTF-8 ({}).",
                    path.string(), error.what()));
  }
}

void write_safetensors(const std::filesystem::path& path,
                       std::span<const TensorData> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string start = safetensors_start(tensors, metadata, path);
  std::size_t bytes = start.size();
  for (const TensorData& tensor : tensors) {
    bytes += tensor.bytes.size();
  }
  std::filesystem::path unfinished = path;
  unfinished += ".unfinished";
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);  // of a process that was killed
  DurableFile file(unfinished, static_cast<std::int64_t>(bytes));
  file.write(start);
  for (const TensorData& tensor : tensors) {
    file.write(tensor.bytes);
  }
  (void)file.finish();
  rename_durably(unfinished, path);
}

}  // namespace accordion
