// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/shm/file_descriptor.h"

// Unix sockets with abstract names: no file, gone with their process.
namespace accordion::detail {

using Deadline = std::chrono::steady_clock::time_point;

/// Throws CommError where another process listens under this name already.
FileDescriptor listen_unix(std::string_view name);

/// Waits for a peer of the same user. Invalid when the deadline passes.
FileDescriptor accept_unix(const FileDescriptor& listener, Deadline deadline);

/// Retries until somebody listens. Invalid when the deadline passes. Throws
/// CommError where the listener belongs to another user.
FileDescriptor connect_unix(std::string_view name, Deadline deadline);

/// Sends one message with descriptors attached. Throws CommError.
void send_message(const FileDescriptor& socket,
                  std::span<const std::byte> message, std::span<const int> fds);

/// Receives one message into `message`, which must have its exact size.
/// Throws CommError when the deadline passes or the peer is gone.
std::vector<FileDescriptor> receive_message(const FileDescriptor& socket,
                                            std::span<std::byte> message,
                                            Deadline deadline);

}  // namespace accordion::detail
