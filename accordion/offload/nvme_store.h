// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "accordion/offload/offload_store.h"

namespace accordion {

/// By what the bytes are moved.
enum class NvmeIo {
  Auto,     ///< Uring where kernel and file system allow it, else Threads
  Uring,    ///< io_uring, or an error that says why it cannot be
  Threads,  ///< a few threads that call pread and pwrite
};

struct NvmeOptions {
  /// An existing folder on the disk that is to hold the blocks. No name appears
  /// in it.
  std::filesystem::path folder;
  /// The size of each block, zero or more.
  std::vector<std::int64_t> block_bytes;
  NvmeIo io = NvmeIo::Auto;
  /// Moves bytes past the page cache where the file system can (O_DIRECT).
  /// Without, threads move them through the cache and have it forget them.
  bool direct = true;
  /// How long one wait may take, more than zero.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Blocks in one scratch file, each from a multiple of kOffloadAlignment on.
///
/// // [Note: scratch file]
/// The file has no name (O_TMPFILE, or removed as soon as it was made): it goes
/// with the process, however that ends. Its space is reserved at once, so that
/// a disk that is too small is found out before the run; describe() says where
/// a file system cannot reserve.
///
/// // [Note: requests]
/// Blocks are cut into requests of 1 MiB. 32 of them are under way by io_uring,
/// or one on each of 4 threads; the others queue, reads before writes: somebody
/// waits for a read. A few requests are enough for the rate of a disk, and a
/// read that is asked for does not wait for whole blocks that are being
/// written. Through the page cache it is threads that work: the kernel would
/// hand such requests to threads of its own, and that pages are on the disk and
/// can be forgotten is known only by waiting.
///
/// Memory  none but a few KiB
/// Throws  OffloadError for a folder that cannot be used, a disk that is too
///         small, NvmeIo::Uring where it is refused, sizes or a timeout out of
///         range
std::unique_ptr<OffloadStore> make_nvme_store(const NvmeOptions& options);

}  // namespace accordion
