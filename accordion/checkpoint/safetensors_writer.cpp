// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

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

std::string make_header(std::span<const TensorData> tensors,
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
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path,
                       std::span<const TensorData> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata, path);
  std::filesystem::path unfinished = path;
  unfinished += ".unfinished";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    const auto length = static_cast<std::uint64_t>(header.size());
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    for (const TensorData& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
                 static_cast<std::streamsize>(tensor.bytes.size()));
    }
    file.close();
    if (!file) {
      throw CheckpointError(
          fmt::format("[write_safetensors] '{}' cannot be written: {}.",
                      unfinished.string(), std::strerror(errno)));
    }
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) {
    throw CheckpointError(fmt::format("[write_safetensors] '{}': {}.",
                                      path.string(), error.message()));
  }
}

}  // namespace accordion
