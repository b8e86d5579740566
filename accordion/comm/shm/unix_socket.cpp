// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/unix_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/control_block.h"

namespace accordion::detail {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(10);
// Longer than a killed predecessor needs to disappear.
constexpr auto kBindPatience = std::chrono::seconds(2);

[[noreturn]] void fail(std::string_view what) {
  throw CommError(fmt::format("[shm] {}: {}", what, std::strerror(errno)));
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(std::string_view name) {
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof(address.sun_path)) {
      throw std::logic_error("[shm] socket name too long");
    }
    // A leading zero byte makes the name abstract.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    name.size());
  }
  [[nodiscard]] const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

FileDescriptor make_socket() {
  FileDescriptor socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) {
    fail("cannot make a socket");
  }
  return socket_fd;
}

bool same_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) ==
             0 &&
         peer.uid == getuid();
}

bool wait_readable(const FileDescriptor& socket, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
    const int count =
        poll(&wait, 1,
             static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000)));
    if (count > 0) {
      return true;
    }
    if (count == 0 && left.count() <= 0) {
      return false;
    }
  }
}

// Room for the descriptors of one message.
struct FdSpace {
  alignas(cmsghdr) std::byte data[CMSG_SPACE(sizeof(int) * kMaxWorldSize)];
};

std::vector<FileDescriptor> take_fds(msghdr& header) {
  std::vector<FileDescriptor> fds;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
       item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

FileDescriptor listen_unix(std::string_view name) {
  const Address address(name);
  FileDescriptor listener = make_socket();
  const auto deadline = std::chrono::steady_clock::now() + kBindPatience;
  while (bind(listener.get(), address.get(), address.length) != 0) {
    if (errno != EADDRINUSE || std::chrono::steady_clock::now() >= deadline) {
      fail(
          "rank 0 cannot listen for its peers (is another job of yours using "
          "the same port? choose another MASTER_PORT)");
    }
    std::this_thread::sleep_for(kRetry);
  }
  if (listen(listener.get(), kMaxWorldSize) != 0) {
    fail("rank 0 cannot listen for its peers");
  }
  return listener;
}

FileDescriptor accept_unix(const FileDescriptor& listener, Deadline deadline) {
  while (wait_readable(listener, deadline)) {
    FileDescriptor peer(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Anybody on the host can connect to an abstract name.
    if (peer.valid() && same_user(peer)) {
      return peer;
    }
  }
  return FileDescriptor();
}

FileDescriptor connect_unix(std::string_view name, Deadline deadline) {
  const Address address(name);
  do {
    FileDescriptor peer = make_socket();
    if (connect(peer.get(), address.get(), address.length) == 0) {
      if (!same_user(peer)) {
        throw CommError(
            "[shm] another user listens where rank 0 should; choose another "
            "MASTER_PORT");
      }
      return peer;
    }
    std::this_thread::sleep_for(kRetry);
  } while (std::chrono::steady_clock::now() < deadline);
  return FileDescriptor();
}

void send_message(const FileDescriptor& socket,
                  std::span<const std::byte> message,
                  std::span<const int> fds) {
  iovec piece{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  FdSpace space;
  if (!fds.empty()) {
    header.msg_control = space.data;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size_bytes());
  }
  if (sendmsg(socket.get(), &header, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(message.size())) {
    fail("cannot send to a peer");
  }
}

std::vector<FileDescriptor> receive_message(const FileDescriptor& socket,
                                            std::span<std::byte> message,
                                            Deadline deadline) {
  if (!wait_readable(socket, deadline)) {
    throw CommError(
        "[shm] a peer did not answer in time during start-up or allocation. "
        "Rank 0 of the group waits for all; its own output names those that "
        "are missing.");
  }
  iovec piece{message.data(), message.size()};
  FdSpace space;
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = space.data;
  header.msg_controllen = sizeof(space.data);
  const ssize_t count = recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  if (count < 0) {
    fail("cannot receive from a peer");
  }
  std::vector<FileDescriptor> fds = take_fds(header);
  if (static_cast<std::size_t>(count) != message.size() ||
      (header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    throw CommError(
        count == 0
            ? "[shm] a peer closed the connection during start-up or "
              "allocation; its own output says why"
            : "[shm] a peer sent a message of another size; do all ranks run "
              "the same program?");
  }
  return fds;
}

}  // namespace accordion::detail
