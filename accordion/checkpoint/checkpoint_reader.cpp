// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checked_json.h"
#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/read_fully.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using detail::FileDescriptor;

/// Against an index that would have us read at will.
constexpr std::int64_t kMaxIndexBytes = std::int64_t{1} << 30;

/// Opens a regular file, not through a link: names in a checkpoint lead
/// nowhere else. None, and `fault`, where it cannot.
FileDescriptor open_regular(const fs::path& path, std::int64_t& bytes,
                            std::string& fault) {
  FileDescriptor descriptor(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!descriptor.valid()) {
    fault = errno == ELOOP
                ? "it is a link, which may lead out of the folder"
                : std::string("it cannot be opened: ") + std::strerror(errno);
    return {};
  }
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fault = "it is not a file";
    return {};
  }
  bytes = status.st_size;
  return descriptor;
}

CheckpointIndex read_index(const fs::path& folder) {
  const fs::path path = index_file(folder);
  const auto fail = [&](const std::string& fault) {
    throw CheckpointError(fmt::format(
        "[checkpoint] '{}': {}. Give the folder of a checkpoint, such as "
        "RUN/checkpoints/step-00001000.",
        path.string(), fault));
  };
  std::int64_t bytes = 0;
  std::string fault;
  const FileDescriptor descriptor = open_regular(path, bytes, fault);
  if (!descriptor.valid()) {
    fail(fault);
  }
  std::string text;
  if (bytes > kMaxIndexBytes) {
    fault = "it is too large to be an index";
  } else {
    text.resize(static_cast<std::size_t>(bytes));
    fault = detail::read_fully(descriptor.get(), 0,
                               std::as_writable_bytes(std::span(text)));
  }
  if (!fault.empty()) {
    fail(fault);
  }
  return parse_checkpoint_index(text, path.string());
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& folder)
    : CheckpointReader(
          folder, std::make_shared<const CheckpointIndex>(read_index(folder))) {
}

CheckpointReader::CheckpointReader(fs::path folder,
                                   std::shared_ptr<const CheckpointIndex> index)
    : folder_(std::move(folder)),
      index_(std::move(index)),
      descriptors_(index_->files.size()) {}

CheckpointReader CheckpointReader::another() const {
  return {folder_, index_};
}

void CheckpointReader::fail(std::int64_t file, const std::string& fault) const {
  const fs::path path =
      folder_ / index_->files[static_cast<std::size_t>(file)].name;
  throw CheckpointError(fmt::format(
      "[checkpoint] '{}'{}: {}. The checkpoint is damaged; use another one.",
      path.string(),
      reading_.empty() ? ""
                       : fmt::format(", tensor '{}'", detail::shown(reading_)),
      fault));
}

std::string_view CheckpointReader::stored_name(std::string_view name) const {
  if (const auto found = index_->tensors.find(name);
      found != index_->tensors.end()) {
    return found->first;
  }
  constexpr std::string_view kModel = "model/";
  if (!name.starts_with(kModel)) {
    return {};
  }
  const auto alias = index_->aliases.find(name.substr(kModel.size()));
  if (alias == index_->aliases.end()) {
    return {};
  }
  return index_->tensors.find(std::string(kModel) + alias->second)->first;
}

const StoredTensor* CheckpointReader::find(std::string_view name) const {
  const std::string_view stored = stored_name(name);
  return stored.empty() ? nullptr : &index_->tensors.find(stored)->second;
}

int CheckpointReader::open_file(std::int64_t file) {
  FileDescriptor& descriptor = descriptors_[static_cast<std::size_t>(file)];
  if (!descriptor.valid()) {
    const CheckpointFile& expected =
        index_->files[static_cast<std::size_t>(file)];
    std::int64_t bytes = 0;
    std::string fault;
    descriptor = open_regular(folder_ / expected.name, bytes, fault);
    if (!descriptor.valid()) {
      fail(file, fault);
    }
    if (bytes != expected.bytes) {
      descriptor = {};
      fail(file, fmt::format("it has {} bytes and the index says {}", bytes,
                             expected.bytes));
    }
  }
  return descriptor.get();
}

/// Reads a whole block to memory of its size, and verifies it.
void CheckpointReader::read_block(std::int64_t file, std::int64_t block,
                                  std::span<std::byte> into) {
  const std::int64_t offset = block * kChecksumBlockBytes;
  if (const std::string fault =
          detail::read_fully(open_file(file), offset, into);
      !fault.empty()) {
    fail(file, fmt::format("reading {} bytes at offset {} failed: {}",
                           into.size(), offset, fault));
  }
  bytes_read_ += static_cast<std::int64_t>(into.size());
  if (checksum_of(into) != index_->files[static_cast<std::size_t>(file)]
                               .checksums[static_cast<std::size_t>(block)]) {
    fail(file,
         fmt::format("bytes {} to {} do not have the checksum that the "
                     "index gives",
                     offset, offset + static_cast<std::int64_t>(into.size())));
  }
}

/// The block, from the buffer where it is the one read last: small tensors
/// share blocks.
std::span<const std::byte> CheckpointReader::load_block(std::int64_t file,
                                                        std::int64_t block) {
  const std::int64_t bytes = std::min(
      kChecksumBlockBytes, index_->files[static_cast<std::size_t>(file)].bytes -
                               block * kChecksumBlockBytes);
  if (buffered_file_ != file || buffered_block_ != block) {
    buffered_file_ = -1;
    buffer_.resize(static_cast<std::size_t>(kChecksumBlockBytes));
    read_block(file, block,
               std::span(buffer_).first(static_cast<std::size_t>(bytes)));
    buffered_file_ = file;
    buffered_block_ = block;
  }
  return std::span(buffer_).first(static_cast<std::size_t>(bytes));
}

void CheckpointReader::read_bytes(std::int64_t file, std::int64_t offset,
                                  std::span<std::byte> into) {
  while (!into.empty()) {
    const std::int64_t block = offset / kChecksumBlockBytes;
    const auto skip =
        static_cast<std::size_t>(offset - block * kChecksumBlockBytes);
    const auto whole = static_cast<std::size_t>(kChecksumBlockBytes);
    if (skip == 0 && into.size() >= whole) {  // where it is wanted, no copy
      read_block(file, block, into.first(whole));
      into = into.subspan(whole);
      offset += kChecksumBlockBytes;
      continue;
    }
    const auto part = load_block(file, block).subspan(skip);
    const std::size_t now = std::min(part.size(), into.size());
    std::memcpy(into.data(), part.data(), now);
    into = into.subspan(now);
    offset += static_cast<std::int64_t>(now);
  }
}

void CheckpointReader::read(std::string_view name, std::int64_t begin,
                            std::span<std::byte> into) {
  reading_ = stored_name(name);
  const StoredTensor& tensor = index_->tensors.find(reading_)->second;
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  // The first range that ends behind `begin`.
  auto range =
      std::ranges::upper_bound(tensor.ranges, begin, {}, &StoredRange::end);
  while (!into.empty()) {
    const std::int64_t count = std::min(
        range->end - begin, static_cast<std::int64_t>(into.size()) / element);
    const auto bytes = static_cast<std::size_t>(count * element);
    read_bytes(range->file, range->offset + (begin - range->begin) * element,
               into.first(bytes));
    into = into.subspan(bytes);
    begin += count;
    ++range;
  }
  reading_ = {};
}

void CheckpointReader::verify() {
  reading_ = {};  // of a read that failed
  for (std::size_t file = 0; file < index_->files.size(); ++file) {
    (void)open_file(static_cast<std::int64_t>(file));  // it may have no block
    const auto blocks =
        static_cast<std::int64_t>(index_->files[file].checksums.size());
    for (std::int64_t block = 0; block < blocks; ++block) {
      (void)load_block(static_cast<std::int64_t>(file), block);
    }
  }
}

}  // namespace accordion
