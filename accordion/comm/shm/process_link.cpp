// SPDX-License-Identifier: BSD-3-Clause
// [Note: shm start-up] Rank 0 listens on an abstract Unix socket; the others
// connect and send a Hello with the read end of a pipe, whose only write end
// they keep. Rank 0 answers each with a Welcome, the control block, and the
// read ends of all ranks. A rank's pipe reports the end of file once its
// process is gone, however it went. The sockets stay open for allocations.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "accordion/comm/shm/rank_link.h"
#include "accordion/comm/shm/unix_socket.h"

namespace accordion::detail {
namespace {

// Changes with anything that two builds must agree on.
constexpr std::uint64_t kProtocol = 0xacc0'0001'0000'0000 + sizeof(RankRow);

struct Hello {
  std::uint64_t protocol = kProtocol;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
};

struct Welcome {
  std::uint64_t protocol = kProtocol;
};

// Announces the descriptors of allocation `number`.
struct Offer {
  std::uint64_t number = 0;
};

template <typename Message>
std::span<const std::byte> bytes_of(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

template <typename Message>
std::vector<FileDescriptor> receive(const FileDescriptor& socket,
                                    Message& message, Deadline deadline) {
  return receive_message(socket, std::as_writable_bytes(std::span(&message, 1)),
                         deadline);
}

std::vector<int> numbers(const std::vector<FileDescriptor>& fds) {
  std::vector<int> result;
  for (const FileDescriptor& fd : fds) {
    result.push_back(fd.get());
  }
  return result;
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Names of sockets are short, run ids need not be.
std::string socket_name(std::string_view group) {
  return fmt::format("accordion-{}-{:016x}", getuid(), fnv1a(group));
}

class ProcessLink : public RankLink {
 public:
  explicit ProcessLink(const ShmOptions& options)
      : rank_(options.rank),
        world_size_(options.world_size),
        names_(options.members),
        timeout_(options.timeout),
        sockets_(static_cast<std::size_t>(world_size_)),
        lives_(static_cast<std::size_t>(world_size_)) {
    std::array<int, 2> ends;
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw CommError(
          fmt::format("[shm] cannot make a pipe: {}", std::strerror(errno)));
    }
    lives_[static_cast<std::size_t>(rank_)] = FileDescriptor(ends[0]);
    own_life_ = FileDescriptor(ends[1]);
  }

  void gather_peers(std::string_view group);
  void join(std::string_view group);

  bool alive(int rank) override {
    pollfd life{.fd = lives_[static_cast<std::size_t>(rank)].get(),
                .events = POLLIN,
                .revents = 0};
    return poll(&life, 1, 0) == 0;
  }

  Mapping& control_memory() override { return *control_; }
  void offer(const SegmentRequest& request) override;
  void relay(const SegmentRequest& request) override;
  std::vector<std::shared_ptr<Mapping>> collect(
      const SegmentRequest& request) override;
  void settle() override { offered_.clear(); }

 private:
  void greet(FileDescriptor peer, Deadline deadline);
  void welcome_all();
  [[nodiscard]] std::vector<int> missing_ranks() const;
  [[nodiscard]] Deadline deadline() const {
    return std::chrono::steady_clock::now() + timeout_;
  }
  std::vector<FileDescriptor> receive_offer(int from, std::uint64_t number);

  const int rank_;
  const int world_size_;
  const RankNames names_;
  const std::chrono::milliseconds timeout_;
  std::vector<FileDescriptor> sockets_;  // rank 0: by peer; others: [0]
  std::vector<FileDescriptor> lives_;    // by rank
  FileDescriptor own_life_;
  std::optional<Mapping> control_;
  std::vector<FileDescriptor> offered_;  // by rank, on rank 0
};

void ProcessLink::gather_peers(std::string_view group) {
  const FileDescriptor listener = listen_unix(socket_name(group));
  const Deadline end = deadline();
  for (std::vector<int> missing = missing_ranks(); !missing.empty();
       missing = missing_ranks()) {
    FileDescriptor peer = accept_unix(listener, end);
    if (!peer.valid()) {
      throw CommError(fmt::format(
          "[shm] {} waited {} ms for {} to start (meeting point '{}'). Are "
          "they "
          "running on this host, with the same MASTER_ADDR, MASTER_PORT and "
          "run id?",
          names_.one_of(0, world_size_), timeout_.count(), names_.list(missing),
          group));
    }
    greet(std::move(peer), end);
  }
  welcome_all();
}

std::vector<int> ProcessLink::missing_ranks() const {
  std::vector<int> missing;
  for (int rank = 1; rank < world_size_; ++rank) {
    if (!sockets_[static_cast<std::size_t>(rank)].valid()) {
      missing.push_back(rank);
    }
  }
  return missing;
}

void ProcessLink::greet(FileDescriptor peer, Deadline deadline) {
  Hello hello;
  std::vector<FileDescriptor> life = receive(peer, hello, deadline);
  if (hello.protocol != kProtocol || life.size() != 1) {
    throw CommError(
        "[shm] a peer runs another version of Accordion than rank 0");
  }
  if (hello.world_size != world_size_ || hello.rank < 1 ||
      hello.rank >= world_size_) {
    throw CommError(fmt::format(
        "[shm] a process joined as rank {} of {}, but rank 0 expects {} ranks",
        hello.rank, hello.world_size, world_size_));
  }
  const auto rank = static_cast<std::size_t>(hello.rank);
  if (sockets_[rank].valid()) {
    throw CommError(fmt::format("[shm] two processes say that they are {}",
                                names_.one_of(hello.rank, world_size_)));
  }
  sockets_[rank] = std::move(peer);
  lives_[rank] = std::move(life[0]);
}

void ProcessLink::welcome_all() {
  const std::int64_t bytes = page_aligned(control_memory_bytes(world_size_));
  check_memory_limits(bytes, bytes, "control block");
  const FileDescriptor file = create_memory_file(bytes, "control block");
  control_.emplace(Mapping::shared(file.get(), bytes, "control block"));
  std::vector<int> fds = numbers(lives_);
  fds.push_back(file.get());
  for (int peer = 1; peer < world_size_; ++peer) {
    send_message(sockets_[static_cast<std::size_t>(peer)], bytes_of(Welcome{}),
                 fds);
  }
}

void ProcessLink::join(std::string_view group) {
  const Deadline end = deadline();
  sockets_[0] = connect_unix(socket_name(group), end);
  if (!sockets_[0].valid()) {
    throw CommError(fmt::format(
        "[shm] {} waited {} ms for rank {} to start (meeting point '{}'). Is "
        "it running on this host, with the same MASTER_ADDR, MASTER_PORT and "
        "run id?",
        names_.one_of(rank_, world_size_), timeout_.count(), names_[0], group));
  }
  Hello hello;
  hello.rank = rank_;
  hello.world_size = world_size_;
  const std::array<int, 1> life = {
      lives_[static_cast<std::size_t>(rank_)].get()};
  send_message(sockets_[0], bytes_of(hello), life);
  Welcome welcome;
  std::vector<FileDescriptor> fds = receive(sockets_[0], welcome, end);
  if (welcome.protocol != kProtocol ||
      fds.size() != static_cast<std::size_t>(world_size_) + 1) {
    throw CommError("[shm] rank 0 runs another version of Accordion");
  }
  control_.emplace(Mapping::shared(
      fds.back().get(), page_aligned(control_memory_bytes(world_size_)),
      "control block"));
  fds.pop_back();
  lives_ = std::move(fds);
}

void ProcessLink::offer(const SegmentRequest& request) {
  offered_.clear();
  if (rank_ != 0 && !request.one_per_rank) {
    return;
  }
  FileDescriptor file = create_memory_file(request.bytes, request.label);
  if (rank_ == 0) {
    offered_.push_back(std::move(file));
    return;
  }
  const std::array<int, 1> fds = {file.get()};
  send_message(sockets_[0], bytes_of(Offer{request.number}), fds);
}

void ProcessLink::relay(const SegmentRequest& request) {
  if (rank_ != 0) {
    return;
  }
  for (int peer = 1; request.one_per_rank && peer < world_size_; ++peer) {
    offered_.push_back(std::move(receive_offer(peer, request.number).at(0)));
  }
  for (int peer = 1; peer < world_size_; ++peer) {
    send_message(sockets_[static_cast<std::size_t>(peer)],
                 bytes_of(Offer{request.number}), numbers(offered_));
  }
}

// Allocations that failed after some ranks had made their offer left messages
// behind: skips those.
std::vector<FileDescriptor> ProcessLink::receive_offer(int from,
                                                       std::uint64_t number) {
  while (true) {
    Offer offer;
    auto fds =
        receive(sockets_[static_cast<std::size_t>(from)], offer, deadline());
    if (offer.number == number) {
      return fds;
    }
  }
}

std::vector<std::shared_ptr<Mapping>> ProcessLink::collect(
    const SegmentRequest& request) {
  if (rank_ != 0) {
    offered_ = receive_offer(0, request.number);
  }
  std::vector<std::shared_ptr<Mapping>> mappings;
  for (const FileDescriptor& file : offered_) {
    mappings.push_back(std::make_shared<Mapping>(
        Mapping::shared(file.get(), request.bytes, request.label)));
  }
  return mappings;
}

}  // namespace

std::unique_ptr<RankLink> link_processes(const ShmOptions& options) {
  auto link = std::make_unique<ProcessLink>(options);
  if (options.rank == 0) {
    link->gather_peers(options.name);
  } else {
    link->join(options.name);
  }
  return link;
}

}  // namespace accordion::detail
