// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/read_fully.h"
#include "accordion/checkpoint/safetensors_header.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian and read as they are");

namespace accordion {
namespace {

/// Bytes converted at a time.
constexpr std::int64_t kChunkBytes = 1 << 18;

void read_exactly(int descriptor, const std::filesystem::path& path,
                  std::int64_t offset, void* into, std::int64_t bytes) {
  const std::string fault = detail::read_fully(
      descriptor, offset,
      {static_cast<std::byte*>(into), static_cast<std::size_t>(bytes)});
  if (!fault.empty()) {
    throw CheckpointError(
        fmt::format("[safetensors] '{}': reading {} bytes at {} failed: {}.",
                    path.string(), bytes, offset, fault));
  }
}

std::int64_t size_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw CheckpointError(fmt::format(
        "[safetensors] '{}' is not a file. Give the path of a .safetensors "
        "file.",
        path.string()));
  }
  return status.st_size;
}

std::string read_header(int descriptor, const std::filesystem::path& path,
                        std::int64_t file_bytes) {
  std::uint64_t length = 0;
  if (file_bytes >= detail::kLengthBytes) {
    read_exactly(descriptor, path, 0, &length, detail::kLengthBytes);
  }
  const auto available = static_cast<std::uint64_t>(
      std::max<std::int64_t>(file_bytes - detail::kLengthBytes, 0));
  if (length < 2 || length > available || length > detail::kMaxHeaderBytes) {
    throw CheckpointError(
        fmt::format("[safetensors] '{}': a header of {} bytes does not fit a "
                    "file of {}. Is "
                    "it a safetensors file, and complete?",
                    path.string(), length, file_bytes));
  }
  std::string header(length, '\0');
  read_exactly(descriptor, path, detail::kLengthBytes, header.data(),
               static_cast<std::int64_t>(length));
  return header;
}

}  // namespace

std::int64_t TensorEntry::numel() const {
  return detail::numel_of(shape);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      // A pipe would wait for somebody who writes.
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!descriptor_.valid()) {
    throw CheckpointError(
        fmt::format("[safetensors] '{}' cannot be opened: {}.", path.string(),
                    std::strerror(errno)));
  }
  const std::int64_t file_bytes = size_of(descriptor_.get(), path);
  detail::SafetensorsHeader header = detail::parse_safetensors_header(
      read_header(descriptor_.get(), path, file_bytes), file_bytes,
      path.string());
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorEntry::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void SafetensorsFile::read(const TensorEntry& tensor, std::int64_t begin,
                           std::span<float> into) const {
  const auto numel = static_cast<std::int64_t>(into.size());
  if (begin < 0 || numel > tensor.numel() || begin > tensor.numel() - numel) {
    throw CheckpointError(fmt::format(
        "[safetensors] '{}', tensor '{}': elements [{}, {}) were asked for, "
        "but "
        "it has {}.",
        path_.string(), tensor.name, begin, begin + numel, tensor.numel()));
  }
  const auto convert = detail::conversion_to_fp32(tensor.dtype);
  if (convert == nullptr) {
    throw CheckpointError(
        fmt::format("[safetensors] '{}', tensor '{}': dtype '{}' cannot be "
                    "read as fp32; F32, "
                    "BF16 and F16 can.",
                    path_.string(), tensor.name, tensor.dtype));
  }
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  if (element == sizeof(float)) {
    read_exactly(descriptor_.get(), path_, tensor.begin + begin * element,
                 into.data(), numel * element);
    return;
  }
  std::vector<std::uint16_t> chunk(std::min(numel, kChunkBytes / element));
  for (std::int64_t done = 0; done < numel;) {
    const auto count = std::min<std::int64_t>(
        numel - done, static_cast<std::int64_t>(chunk.size()));
    read_exactly(descriptor_.get(), path_,
                 tensor.begin + (begin + done) * element, chunk.data(),
                 count * element);
    convert(chunk.data(), into.data() + done, count);
    done += count;
  }
}

void SafetensorsFile::read_stored(const TensorEntry& tensor, std::int64_t begin,
                                  std::span<std::byte> into) const {
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  read_exactly(descriptor_.get(), path_, tensor.begin + begin * element,
               into.data(), static_cast<std::int64_t>(into.size()));
}

}  // namespace accordion
