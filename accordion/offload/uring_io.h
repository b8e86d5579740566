// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "accordion/offload/request.h"

namespace accordion::detail {

/// How many requests the kernel has at a time.
inline constexpr unsigned kUringDepth = 32;

/// Requests by io_uring, kUringDepth at a time. One thread hands them to the
/// kernel and takes back what is done.
///
/// Throws  std::system_error where the kernel refuses: containers and hardened
///         systems do (EPERM, ENOSYS), old kernels where the limit on locked
///         memory is small (ENOMEM)
std::unique_ptr<RequestIo> make_uring_io(int file,
                                         RequestIo::Finished finished);

}  // namespace accordion::detail
