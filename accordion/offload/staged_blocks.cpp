// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/staged_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace accordion {
namespace {

/// Adds the time of its life to a number of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
};

std::int64_t largest(const std::vector<std::int64_t>& block_bytes,
                     std::int64_t least) {
  std::int64_t bytes = offload_aligned(least);
  for (const std::int64_t block : block_bytes) {
    bytes = std::max(bytes, offload_aligned(block));
  }
  return bytes;
}

int checked(int buffers) {
  if (buffers < 1) {
    throw std::invalid_argument(fmt::format(
        "[StagedBlocks] {} buffers; one or more are needed.", buffers));
  }
  return buffers;
}

void add(OffloadCounters& to, const OffloadCounters& other, int sign) {
  to.bytes_read += sign * other.bytes_read;
  to.bytes_written += sign * other.bytes_written;
  to.seconds_in_flight += sign * other.seconds_in_flight;
  to.reads += sign * other.reads;
  to.reads_in_time += sign * other.reads_in_time;
  to.seconds_waited += sign * other.seconds_waited;
}

}  // namespace

OffloadCounters& OffloadCounters::operator+=(const OffloadCounters& other) {
  add(*this, other, 1);
  return *this;
}

OffloadCounters& OffloadCounters::operator-=(const OffloadCounters& other) {
  add(*this, other, -1);
  return *this;
}

StagedBlocks::StagedBlocks(std::unique_ptr<OffloadStore> store,
                           std::vector<std::int64_t> block_bytes, int buffers,
                           std::int64_t least_bytes)
    : block_bytes_(std::move(block_bytes)),
      store_(std::move(store)),
      written_(block_bytes_.size()) {
  grow_buffers(checked(buffers), largest(block_bytes_, least_bytes));
}

void StagedBlocks::grow_buffers(int buffers, std::int64_t bytes_each) {
  const auto count =
      std::max(static_cast<std::size_t>(buffers), buffers_.size());
  if (offload_aligned(bytes_each) > bytes_per_buffer_) {
    forget(0, num_blocks());
    buffers_.clear();
    memory_.clear();
    bytes_per_buffer_ = offload_aligned(bytes_each);
  }
  while (memory_.size() < count) {
    memory_.emplace_back(
        bytes_per_buffer_,
        fmt::format("one of {} buffers of offloaded blocks", count));
    buffers_.emplace_back();
  }
}

void StagedBlocks::add_blocks(const std::vector<std::int64_t>& block_bytes) {
  const std::int64_t most = largest(block_bytes, 0);
  if (most > bytes_per_buffer_) {
    throw std::logic_error(
        fmt::format("[StagedBlocks] a block of {} bytes is added to buffers of "
                    "{}.",
                    most, bytes_per_buffer_));
  }
  store_->add_blocks(block_bytes);
  block_bytes_.insert(block_bytes_.end(), block_bytes.begin(),
                      block_bytes.end());
  written_.resize(block_bytes_.size());
}

bool StagedBlocks::prefetch(int block) {
  check_block(block);
  if (Buffer* const buffer = buffer_of(block)) {
    buffer->wanted = true;
    buffer->last_use = ++uses_;
    return true;
  }
  if (!written_[static_cast<std::size_t>(block)]) {
    return true;
  }
  settle_finished();
  Buffer* const buffer = find_idle();
  if (buffer == nullptr) {
    return false;
  }
  start_read(*buffer, block);
  buffer->wanted = true;
  buffer->last_use = ++uses_;
  return true;
}

std::span<std::byte> StagedBlocks::acquire(int block) {
  check_block(block);
  Buffer& buffer = bring(block);
  if (buffer.state == State::Free) {
    std::ranges::fill(memory_of(buffer, block), std::byte{0});
  }
  return hold(buffer, block);
}

std::span<std::byte> StagedBlocks::overwrite(int block) {
  check_block(block);
  check_not_held(block);
  const Stopwatch waited(counters_.seconds_waited);
  Buffer* buffer = buffer_of(block);
  if (buffer == nullptr) {
    buffer = &wait_for_idle();
  } else {
    settle(*buffer);
  }
  return hold(*buffer, block);
}

std::span<std::byte> StagedBlocks::hold(Buffer& buffer, int block) {
  buffer = {.state = State::Held, .block = block};
  return memory_of(buffer, block)
      .first(static_cast<std::size_t>(
          block_bytes_[static_cast<std::size_t>(block)]));
}

void StagedBlocks::check_not_held(int block) {
  const Buffer* const buffer = buffer_of(block);
  if (buffer != nullptr && buffer->state == State::Held) {
    throw std::logic_error(fmt::format(
        "[StagedBlocks] block {} is held already; release it first.", block));
  }
}

/// A buffer that has the bytes of the block and is in no transfer, or a free
/// one where the block was never written.
StagedBlocks::Buffer& StagedBlocks::bring(int block) {
  check_not_held(block);
  const Stopwatch waited(counters_.seconds_waited);
  Buffer* buffer = buffer_of(block);
  if (buffer == nullptr) {
    buffer = &wait_for_idle();
    if (!written_[static_cast<std::size_t>(block)]) {
      return *buffer;
    }
    start_read(*buffer, block);
    ++counters_.reads;
  } else if (buffer->state == State::Arriving) {
    ++counters_.reads;
    counters_.reads_in_time += store_->in_flight(block) ? 0 : 1;
  }
  // Also where the block is leaving: its bytes are not to change meanwhile.
  settle(*buffer);
  return *buffer;
}

void StagedBlocks::release(int block, Use use) {
  check_block(block);
  Buffer* const buffer = buffer_of(block);
  if (buffer == nullptr || buffer->state != State::Held) {
    throw std::logic_error(fmt::format(
        "[StagedBlocks] block {} is released and was not acquired.", block));
  }
  if (use == Use::Changed) {
    store_->start_write(block, memory_of(*buffer, block));
    written_[static_cast<std::size_t>(block)] = true;
  }
  buffer->state = use == Use::Changed ? State::Leaving : State::Clean;
  buffer->last_use = ++uses_;
}

void StagedBlocks::flush() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::Leaving) {
      settle(buffer);
    }
  }
}

void StagedBlocks::forget(int first, int last) {
  for (Buffer& buffer : buffers_) {
    if (buffer.block < first || buffer.block >= last) {
      continue;
    }
    if (buffer.state == State::Held) {
      throw std::logic_error(fmt::format(
          "[StagedBlocks] block {} is held, and to be seen or changed in the "
          "store; release it first.",
          buffer.block));
    }
    settle(buffer);
    buffer = Buffer();
  }
}

std::shared_ptr<std::byte> StagedBlocks::map(int first, int last) {
  forget(first, last);
  for (int block = first; block < last; ++block) {
    check_block(block);
    written_[static_cast<std::size_t>(block)] = true;  // as far as is known
  }
  return store_->map(first, last);
}

int StagedBlocks::num_promised() const {
  return static_cast<int>(std::ranges::count(buffers_, true, &Buffer::wanted));
}

std::int64_t StagedBlocks::buffer_bytes() const {
  return static_cast<std::int64_t>(buffers_.size()) * bytes_per_buffer_;
}

OffloadCounters StagedBlocks::counters() const {
  OffloadCounters counters = counters_;
  static_cast<OffloadTraffic&>(counters) = store_->traffic();
  return counters;
}

std::string StagedBlocks::describe() const {
  return fmt::format("{} buffers of {} bytes; {}", buffers_.size(),
                     bytes_per_buffer_, store_->describe());
}

void StagedBlocks::check_block(int block) const {
  if (block < 0 || static_cast<std::size_t>(block) >= block_bytes_.size()) {
    throw std::logic_error(fmt::format(
        "[StagedBlocks] there is no block {}: there are {}, counted from 0.",
        block, block_bytes_.size()));
  }
}

StagedBlocks::Buffer* StagedBlocks::buffer_of(int block) {
  const auto found = std::ranges::find(buffers_, block, &Buffer::block);
  return found == buffers_.end() ? nullptr : &*found;
}

/// What of the buffer's memory takes part in transfers of the block.
std::span<std::byte> StagedBlocks::memory_of(const Buffer& buffer,
                                             int block) const {
  return memory_[static_cast<std::size_t>(&buffer - buffers_.data())].part(
      0, offload_aligned(block_bytes_[static_cast<std::size_t>(block)]));
}

/// Ends the transfer of a buffer's block, which may mean waiting.
void StagedBlocks::settle(Buffer& buffer) {
  store_->wait(buffer.block);
  buffer.state = State::Clean;
}

/// Ends transfers of which nothing is left but that it was noticed.
void StagedBlocks::settle_finished() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::Leaving && !store_->in_flight(buffer.block)) {
      settle(buffer);
    }
  }
}

/// Into a free buffer.
void StagedBlocks::start_read(Buffer& buffer, int block) {
  store_->start_read(block, memory_of(buffer, block));
  buffer.state = State::Arriving;
  buffer.block = block;
}

/// A buffer made free without waiting, or null.
StagedBlocks::Buffer* StagedBlocks::find_idle() {
  Buffer* oldest = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::Free) {
      return &buffer;
    }
    if (buffer.state == State::Clean && !buffer.wanted &&
        (oldest == nullptr || buffer.last_use < oldest->last_use)) {
      oldest = &buffer;
    }
  }
  if (oldest != nullptr) {
    *oldest = Buffer();
  }
  return oldest;
}

/// A buffer made free, as [Note: buffers] says.
StagedBlocks::Buffer& StagedBlocks::wait_for_idle() {
  settle_finished();
  if (Buffer* const idle = find_idle()) {
    return *idle;
  }
  // The one to wait for: first what nobody wants, then what was wanted last.
  const auto rank = [](const Buffer& buffer) {
    return std::pair(buffer.wanted,
                     buffer.wanted ? -buffer.last_use : buffer.last_use);
  };
  Buffer* chosen = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.state != State::Held &&
        (chosen == nullptr || rank(buffer) < rank(*chosen))) {
      chosen = &buffer;
    }
  }
  if (chosen == nullptr) {
    throw std::logic_error(fmt::format(
        "[StagedBlocks] all {} buffers are held by blocks that were acquired; "
        "release one first, or make more buffers.",
        buffers_.size()));
  }
  settle(*chosen);
  *chosen = Buffer();
  return *chosen;
}

}  // namespace accordion
