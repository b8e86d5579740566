// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace accordion {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path,
                       std::string_view cause) {
  throw std::invalid_argument(
      fmt::format("[MappedFile] Cannot read '{}': {}. Name files with content "
                  "that this user can read in data.path and data.tokenizer.",
                  path.string(), cause));
}

/// Closes a file descriptor when it goes out of scope; a mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (value_ < 0) {
      fail(path, std::strerror(errno));
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  [[nodiscard]] int value() const { return value_; }

 private:
  int value_;
};

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) {
    fail(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(path, "it is not a regular file");
  }
  if (status.st_size == 0) {
    fail(path, "the file is empty");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data =
      ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value(), 0);
  if (data == MAP_FAILED) {
    fail(path, std::strerror(errno));
  }
  return MappedFile({static_cast<const std::uint8_t*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace accordion
