// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/uring_io.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "accordion/comm/shm/file_descriptor.h"

namespace accordion::detail {
namespace {

/// Owns a ring of the kernel.
class Ring {
 public:
  /// Room for `entries` requests.
  explicit Ring(unsigned entries) {
    check(::io_uring_queue_init(entries, &ring_, 0));
    if (!reads_and_writes()) {
      ::io_uring_queue_exit(&ring_);
      check(-ENOSYS);
    }
  }
  ~Ring() { ::io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }

 private:
  static void check(int result) {
    if (result < 0) {
      throw std::system_error(-result, std::generic_category());
    }
  }

  /// Linux before 5.6 has rings that cannot.
  bool reads_and_writes() {
    io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) {
      return false;
    }
    const bool both = ::io_uring_opcode_supported(probe, IORING_OP_READ) &&
                      ::io_uring_opcode_supported(probe, IORING_OP_WRITE);
    ::io_uring_free_probe(probe);
    return both;
  }

  io_uring ring_{};
};

/// The ring is touched by its thread alone, which callers wake by an eventfd:
/// the ring reads from that as it does from the file.
class UringIo final : public RequestIo {
 public:
  UringIo(int file, Finished finished)
      : file_(file),
        finished_(std::move(finished)),
        ring_(kUringDepth + 1),
        wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_.valid()) {
      throw std::system_error(errno, std::generic_category());
    }
    for (Request& request : requests_) {
      unused_.push_back(&request);
    }
    thread_ = start_io_thread([this] { work(); });
  }

  ~UringIo() override {
    queue_.close();
    wake();
    thread_.join();
  }

  void start(std::span<const Request> requests) override {
    queue_.push(requests);
    wake();
  }

 private:
  void wake() { (void)::eventfd_write(wake_.get(), 1); }

  void work() {
    listen();
    while (!queue_.closed() || unused_.size() < requests_.size()) {
      hand_over();
      // What could not be handed over stays in the ring, for the next time; so
      // nothing is to be done about errors, such as a signal or lack of memory.
      (void)::io_uring_submit_and_wait(ring_.get(), 1);
      take_back();
    }
  }

  /// Asks for the next call of wake().
  void listen() {
    io_uring_sqe* const entry = ::io_uring_get_sqe(ring_.get());
    ::io_uring_prep_read(entry, wake_.get(), &wakes_, sizeof(wakes_), 0);
    ::io_uring_sqe_set_data(entry, nullptr);
  }

  void hand_over() {
    while (!unused_.empty()) {
      const std::optional<Request> next = queue_.pop();
      if (!next) {
        return;
      }
      Request* const request = unused_.back();
      unused_.pop_back();
      *request = *next;
      submit(request);
    }
  }

  /// There is room: the ring has an entry for each request, and one to listen.
  void submit(Request* request) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(ring_.get());
    const auto [direction, block, offset, memory] = *request;
    const auto size = static_cast<unsigned>(memory.size());
    const auto at = static_cast<std::uint64_t>(offset);
    if (direction == Direction::Read) {
      ::io_uring_prep_read(entry, file_, memory.data(), size, at);
    } else {
      ::io_uring_prep_write(entry, file_, memory.data(), size, at);
    }
    ::io_uring_sqe_set_data(entry, request);
  }

  void take_back() {
    io_uring_cqe* done = nullptr;
    while (::io_uring_peek_cqe(ring_.get(), &done) == 0 && done != nullptr) {
      auto* const request =
          static_cast<Request*>(::io_uring_cqe_get_data(done));
      const std::int64_t result = done->res;
      ::io_uring_cqe_seen(ring_.get(), done);
      if (request == nullptr) {
        listen();
      } else {
        take_back(request, result);
      }
    }
  }

  void take_back(Request* request, std::int64_t result) {
    int error = 0;
    const Progress progress = advance(*request, result, error);
    if (progress == Progress::Again && !queue_.closed()) {
      submit(request);
      return;
    }
    finished_(*request, progress == Progress::Again ? ECANCELED : error);
    unused_.push_back(request);
  }

  const int file_;
  const Finished finished_;
  RequestQueue queue_;
  Ring ring_;
  FileDescriptor wake_;
  std::uint64_t wakes_ = 0;                    // what the ring reads from it
  std::array<Request, kUringDepth> requests_;  // in the kernel, or unused
  std::vector<Request*> unused_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RequestIo> make_uring_io(int file,
                                         RequestIo::Finished finished) {
  return std::make_unique<UringIo>(file, std::move(finished));
}

}  // namespace accordion::detail
