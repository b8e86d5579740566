// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "accordion/comm/communicator.h"

namespace accordion::detail {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void fail(std::int64_t bytes, std::string_view label,
                       std::string_view why) {
  throw CommError(fmt::format(
      "[shm] cannot allocate {} bytes of shared memory for '{}': {}. Use a "
      "smaller model or batch, more ranks, or allow this job more memory.",
      bytes, label, why));
}

// The number in a file of one line, or kNoLimit: the file is absent, or says
// "max".
std::int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : kNoLimit;
}

// The number after `key` in a file of lines "key number …", or `fallback`.
std::int64_t read_keyed_number(const char* path, std::string_view key,
                               std::int64_t fallback) {
  std::ifstream file(path);
  std::string found;
  std::int64_t number = 0;
  std::string rest;
  while (file >> found >> number) {
    if (found == key) {
      return number;
    }
    std::getline(file, rest);
  }
  return fallback;
}

std::int64_t available_on_host() {
  const std::int64_t kib =
      read_keyed_number("/proc/meminfo", "MemAvailable:", kNoLimit);
  return kib == kNoLimit ? kNoLimit : kib * 1024;
}

// What the control group of this process leaves, version 2 or 1 as containers
// see it. Cached file contents count as used there, but give way.
std::int64_t available_in_container() {
  constexpr const char* kStatV2 = "/sys/fs/cgroup/memory.stat";
  constexpr const char* kStatV1 = "/sys/fs/cgroup/memory/memory.stat";
  const auto left = [](const char* limit, const char* used,
                       std::int64_t reclaimable) {
    const std::int64_t maximum = read_number(limit);
    const std::int64_t current = read_number(used);
    const bool known = maximum != kNoLimit && current != kNoLimit;
    return known ? bytes_left(maximum, current, reclaimable) : kNoLimit;
  };
  return std::min(
      left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
           read_keyed_number(kStatV2, "inactive_file", 0) +
               read_keyed_number(kStatV2, "active_file", 0)),
      left("/sys/fs/cgroup/memory/memory.limit_in_bytes",
           "/sys/fs/cgroup/memory/memory.usage_in_bytes",
           read_keyed_number(kStatV1, "total_inactive_file", 0) +
               read_keyed_number(kStatV1, "total_active_file", 0)));
}

// Brings every page in now, so that no step pays for a page fault.
void populate(std::byte* data, std::int64_t bytes) {
  if (madvise(data, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE) ==
      0) {
    return;
  }
  // Before Linux 5.14. Only read: another rank may be writing already.
  for (std::int64_t at = 0; at < bytes; at += page_aligned(1)) {
    static_cast<void>(*static_cast<volatile std::byte*>(data + at));
  }
}

[[noreturn]] void fail_mmap(std::int64_t bytes, std::string_view label) {
  fail(bytes, label, fmt::format("mmap: {}", std::strerror(errno)));
}

// Reserves more addresses than `bytes`, and gives back those around the part
// that starts at a multiple of `alignment`.
std::byte* reserve_aligned(std::int64_t bytes, std::int64_t alignment,
                           std::string_view label) {
  void* all = mmap(nullptr, static_cast<std::size_t>(bytes + alignment),
                   PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    fail_mmap(bytes, label);
  }
  auto* const start = static_cast<std::byte*>(all);
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(start) %
                                static_cast<std::uintptr_t>(alignment));
  const std::int64_t before = (alignment - past) % alignment;
  if (before > 0) {
    munmap(start, static_cast<std::size_t>(before));
  }
  if (before < alignment) {
    munmap(start + before + bytes,
           static_cast<std::size_t>(alignment - before));
  }
  return start + before;
}

std::byte* map(std::int64_t bytes, int flags, int fd, std::string_view label) {
  const std::int64_t huge = huge_page_bytes();
  std::byte* place =
      bytes < huge ? nullptr : reserve_aligned(bytes, huge, label);
  void* data =
      mmap(place, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
           place == nullptr ? flags : flags | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    fail_mmap(bytes, label);
  }
  return static_cast<std::byte*>(data);
}

// Puts the whole huge pages of an empty file in place, as far as the kernel
// can: it does so on request even where it does not by itself. It collapses
// pages that are there, so each gets its first.
void request_huge_pages(const FileDescriptor& file, std::int64_t bytes,
                        std::string_view label) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1
  const std::int64_t huge = huge_page_bytes();
  const std::int64_t whole = bytes / huge * huge;
  if (whole == 0) {
    return;
  }
  for (std::int64_t page = 0; page < whole; page += huge) {
    fallocate(file.get(), 0, page, page_aligned(1));
  }
  const Mapping mapping(map(whole, MAP_SHARED, file.get(), label), whole);
  madvise(mapping.data(), static_cast<std::size_t>(whole), kCollapse);
}

}  // namespace

std::int64_t bytes_left(std::int64_t limit, std::int64_t used,
                        std::int64_t reclaimable) {
  const std::int64_t held = std::max<std::int64_t>(0, used - reclaimable);
  return std::max<std::int64_t>(0, limit - held);
}

std::int64_t page_aligned(std::int64_t bytes) {
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  return (std::max<std::int64_t>(bytes, 1) + page - 1) / page * page;
}

std::int64_t huge_page_bytes() {
  static const std::int64_t bytes =
      read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  return bytes;
}

void check_memory_limits(std::int64_t bytes, std::int64_t file_bytes,
                         std::string_view label) {
  rlimit limit{};
  // Beyond this limit ftruncate would raise SIGXFSZ, which ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(file_bytes) > limit.rlim_cur) {
    fail(file_bytes, label,
         fmt::format("the limit on file sizes (ulimit -f) is {} bytes",
                     limit.rlim_cur));
  }
  if (const std::int64_t left = available_on_host(); bytes > left) {
    fail(bytes, label, fmt::format("this host has {} bytes available", left));
  }
  if (const std::int64_t left = available_in_container(); bytes > left) {
    fail(bytes, label,
         fmt::format("this container may use {} bytes more", left));
  }
}

FileDescriptor create_memory_file(std::int64_t bytes, std::string_view label) {
  FileDescriptor file(memfd_create("accordion", MFD_CLOEXEC));
  if (!file.valid()) {
    fail(bytes, label, fmt::format("memfd_create: {}", std::strerror(errno)));
  }
  if (ftruncate(file.get(), bytes) != 0) {
    fail(bytes, label, std::strerror(errno));
  }
  request_huge_pages(file, bytes, label);
  if (fallocate(file.get(), 0, 0, bytes) != 0) {
    fail(bytes, label, std::strerror(errno));
  }
  return file;
}

Mapping Mapping::shared(int memory_file, std::int64_t bytes,
                        std::string_view label) {
  Mapping mapping(map(bytes, MAP_SHARED, memory_file, label), bytes);
  // For kernels that give huge pages when asked beforehand.
  madvise(mapping.data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  populate(mapping.data_, bytes);
  return mapping;
}

Mapping Mapping::anonymous(std::int64_t bytes, std::string_view label) {
  Mapping mapping(map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, label), bytes);
  madvise(mapping.data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  populate(mapping.data_, bytes);
  return mapping;
}

Mapping Mapping::addresses(std::int64_t bytes, std::string_view label) {
  void* const start = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    fail_mmap(bytes, label);
  }
  return {static_cast<std::byte*>(start), bytes};
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    munmap(data_, static_cast<std::size_t>(bytes_));
  }
}

}  // namespace accordion::detail
