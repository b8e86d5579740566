// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "accordion/comm/shm/file_descriptor.h"

// [Note: shared memory] Segments are memfds: memory with a file descriptor and
// no name, which the kernel frees with its last user, however that one ended.
// They do not live in /dev/shm and ignore its size. Pages are reserved when the
// segment is made: a page that cannot be had later would be a SIGBUS in the
// middle of a step.
namespace accordion::detail {

/// Throws CommError when `bytes` more bytes of shared memory would not fit: the
/// memory that is free on this host or allowed to this container, or the
/// largest file this process may make. `bytes` is what all ranks together ask
/// for, `file_bytes` the largest single segment among it.
void check_memory_limits(std::int64_t bytes, std::int64_t file_bytes,
                         std::string_view label);

/// What a container with `limit` and `used` bytes, `reclaimable` of them cached
/// file contents, can still have. The kernel counts the latter two at different
/// moments: the cache may seem larger than all that is used.
[[nodiscard]] std::int64_t bytes_left(std::int64_t limit, std::int64_t used,
                                      std::int64_t reclaimable);

/// A zeroed memfd whose pages are reserved, huge ones as far as possible.
/// Throws CommError that names the bytes.
FileDescriptor create_memory_file(std::int64_t bytes, std::string_view label);

/// Memory mapped into this process, every page present; unmaps when destroyed.
class Mapping {
 public:
  /// Maps the whole of a memfd. Throws CommError that names the bytes.
  static Mapping shared(int memory_file, std::int64_t bytes,
                        std::string_view label);
  /// Maps zeroed memory of this process alone, in huge pages where possible.
  static Mapping anonymous(std::int64_t bytes, std::string_view label);
  /// Addresses alone, no page of which may be read or written.
  static Mapping addresses(std::int64_t bytes, std::string_view label);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Takes over what mmap returned.
  Mapping(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}

 private:
  std::byte* data_;
  std::int64_t bytes_;
};

/// What one entry of the page table's upper level covers; more than any memory
/// where the kernel has no transparent huge pages. Mappings of that size and
/// more start at a multiple of it: the processor then needs a five-hundredth of
/// the table entries, and copies half as long again as much a second.
[[nodiscard]] std::int64_t huge_page_bytes();

/// Rounded up to whole pages, and at least one.
[[nodiscard]] std::int64_t page_aligned(std::int64_t bytes);

}  // namespace accordion::detail
