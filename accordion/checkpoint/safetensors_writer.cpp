// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors_writer.h"

#include <cstring>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/durable_file.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

/// Data starts at a multiple of this many bytes, spaces filling the header.
constexpr std::size_t kAlignment = 64;

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
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string> names;
  std::size_t offset = 0;
  for (const TensorData& tensor : tensors) {
    check(tensor, names, path);
    header[tensor.name] = {
        {"dtype", tensor.dtype},
        {"shape", tensor.shape},
        {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  const std::size_t used = detail::kLengthBytes + text.size();
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string start(sizeof(length), '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  return start + text;
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
