// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/nvme_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "accordion/offload/block_offsets.h"
#include "accordion/offload/request.h"
#include "accordion/offload/scratch_file.h"
#include "accordion/offload/thread_io.h"
#include "accordion/offload/transfers.h"
#include "accordion/offload/uring_io.h"

namespace accordion {
namespace {

using detail::Direction;
using detail::Request;
using detail::RequestIo;
using detail::ScratchFile;
using detail::TransferState;

constexpr std::int64_t kRequestBytes = 1 << 20;
static_assert(kRequestBytes % kOffloadAlignment == 0);

std::chrono::milliseconds checked(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    throw OffloadError(fmt::format(
        "[make_nvme_store] timeout is {} ms: how long one wait may take, more "
        "than zero.",
        timeout.count()));
  }
  return timeout;
}

class NvmeStore final : public OffloadStore {
 public:
  explicit NvmeStore(const NvmeOptions& options)
      : timeout_(checked(options.timeout)),
        offsets_(options.block_bytes, "make_nvme_store"),
        file_(options.folder, offsets_.total_bytes(), options.direct),
        transfers_(options.block_bytes.size()) {
    choose_io(options.io);
  }

  void add_blocks(const std::vector<std::int64_t>& block_bytes) override {
    detail::BlockOffsets offsets = offsets_;
    offsets.add(block_bytes, "offload");
    file_.grow_to(offsets.total_bytes());
    transfers_.set_num_blocks(static_cast<std::size_t>(offsets.num_blocks()));
    offsets_ = std::move(offsets);
  }

  void start_read(int block, std::span<std::byte> memory) override {
    start(block, Direction::Read, memory);
  }

  void start_write(int block, std::span<const std::byte> memory) override {
    // Requests of either direction hold their memory alike.
    start(block, Direction::Write,
          {const_cast<std::byte*>(memory.data()), memory.size()});
  }

  void wait(int block) override {
    const TransferState state = transfers_.wait(block, timeout_);
    if (state.requests_left > 0) {
      throw OffloadError(fmt::format(
          "[offload] {} after {} ms. The disk is stuck or much too slow: see "
          "`dmesg`, or choose a folder on another one.",
          describe_transfer(block, state, "is not done"), timeout_.count()));
    }
    if (state.error != 0) {
      throw OffloadError(fmt::format(
          "[offload] {} at byte {} of its file: {}. {}",
          describe_transfer(block, state, "failed"), state.error_offset,
          std::strerror(state.error),
          detail::advice_on(state.error, file_.folder(), file_.bytes())));
    }
  }

  [[nodiscard]] bool in_flight(int block) const override {
    return transfers_.in_flight(block);
  }

  std::shared_ptr<std::byte> map(int first, int last) override {
    const auto bytes = static_cast<std::size_t>(offsets_.bytes(first, last));
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED, file_.get(), offsets_.begin(first));
    if (memory == MAP_FAILED) {
      throw OffloadError(fmt::format(
          "[offload] blocks {} to {} ({} bytes) of the scratch file in '{}' "
          "cannot be mapped: {}. See `ulimit -v`.",
          first, last - 1, bytes, file_.folder().string(),
          std::strerror(errno)));
    }
    return {static_cast<std::byte*>(memory),
            [bytes](std::byte* begin) { ::munmap(begin, bytes); }};
  }

  /// Out of this process and, where they are on the disk, out of the page
  /// cache.
  void page_out(int first, int last, std::byte* mapped) override {
    const std::int64_t bytes = offsets_.bytes(first, last);
    ::madvise(mapped, static_cast<std::size_t>(bytes), MADV_DONTNEED);
    ::posix_fadvise(file_.get(), offsets_.begin(first), bytes,
                    POSIX_FADV_DONTNEED);
  }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("{}, {}, {} bytes {} in '{}'", how_,
                       file_.direct() ? "O_DIRECT" : "page cache",
                       file_.bytes(),
                       file_.reserved() ? "reserved" : "not reserved",
                       file_.folder().string());
  }

  [[nodiscard]] std::int64_t held_bytes() const override {
    return file_.bytes();
  }

  [[nodiscard]] OffloadTraffic traffic() const override {
    return transfers_.traffic();
  }

  void record_transfers(bool on) override { transfers_.log().record(on); }
  std::vector<TransferSpan> take_transfers() override {
    return transfers_.log().take();
  }

 private:
  void choose_io(NvmeIo io) {
    if (io == NvmeIo::Threads) {
      use_threads("");
      return;
    }
    std::string why;
    if (!file_.direct()) {
      why = "the page cache is used";
    } else {
      try {
        io_ = detail::make_uring_io(file_.get(), finished());
        how_ = "io_uring";
        return;
      } catch (const std::system_error& refused) {
        why = fmt::format("it is refused: {}", refused.code().message());
      }
    }
    if (io == NvmeIo::Uring) {
      throw OffloadError(fmt::format(
          "[make_nvme_store] io_uring cannot be used for the folder '{}': {}. "
          "Leave the choice to NvmeIo::Auto, or use NvmeIo::Threads.",
          file_.folder().string(), why));
    }
    use_threads(fmt::format(" (no io_uring: {})", why));
  }

  void use_threads(const std::string& why) {
    io_ = std::make_unique<detail::ThreadIo>(file_.get(), !file_.direct(),
                                             finished());
    how_ = fmt::format("{} threads{}", detail::kIoThreads, why);
  }

  RequestIo::Finished finished() {
    return [this](const Request& request, int error) {
      transfers_.finish(request, error);
    };
  }

  void start(int block, Direction direction, std::span<std::byte> memory) {
    offsets_.check_memory(block, memory);
    if (in_flight(block)) {
      wait(block);
    }
    const std::vector<Request> requests = cut(block, direction, memory);
    transfers_.begin(block, direction, static_cast<int>(requests.size()),
                     static_cast<std::int64_t>(memory.size()));
    io_->start(requests);
  }

  [[nodiscard]] std::vector<Request> cut(int block, Direction direction,
                                         std::span<std::byte> memory) const {
    std::vector<Request> requests;
    std::int64_t offset = offsets_.begin(block);
    while (!memory.empty()) {
      const std::size_t now =
          std::min(memory.size(), static_cast<std::size_t>(kRequestBytes));
      requests.push_back({direction, block, offset, memory.first(now)});
      offset += static_cast<std::int64_t>(now);
      memory = memory.subspan(now);
    }
    return requests;
  }

  [[nodiscard]] std::string describe_transfer(int block,
                                              const TransferState& state,
                                              const char* what) const {
    return fmt::format(
        "{} block {} ({} bytes) {} the scratch file in '{}' {}",
        state.direction == Direction::Read ? "reading" : "writing", block,
        offsets_.bytes(block),
        state.direction == Direction::Read ? "from" : "to",
        file_.folder().string(), what);
  }

  const std::chrono::milliseconds timeout_;
  detail::BlockOffsets offsets_;
  ScratchFile file_;
  detail::Transfers transfers_;
  std::string how_;
  std::unique_ptr<RequestIo> io_;  // ends first: its threads use the others
};

}  // namespace

std::unique_ptr<OffloadStore> make_nvme_store(const NvmeOptions& options) {
  return std::make_unique<NvmeStore>(options);
}

}  // namespace accordion
