// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace accordion::testing {

/// A finding where what is promised does not hold.
inline void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// A file that lies in memory, for readers that want a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  void set_content(const std::uint8_t* data, std::size_t size) const {
    require(::ftruncate(descriptor_, 0) == 0);
    require(::pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size));
  }
  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace accordion::testing
