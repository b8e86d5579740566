// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/host_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "accordion/offload/aligned_memory.h"
#include "accordion/offload/block_offsets.h"
#include "accordion/offload/transfer_log.h"

namespace accordion {
namespace {

using detail::BlockOffsets;

class HostStore final : public OffloadStore {
 public:
  HostStore(const std::vector<std::int64_t>& block_bytes, HostPool& pool)
      : pool_(pool), offsets_({}, "make_host_store") {
    add(block_bytes, "make_host_store");
  }

  void add_blocks(const std::vector<std::int64_t>& block_bytes) override {
    add(block_bytes, "offload");
  }

  void start_read(int block, std::span<std::byte> memory) override {
    copy(place_of(block, memory), memory, {.block = block});
    traffic_.bytes_read += static_cast<std::int64_t>(memory.size());
  }

  void start_write(int block, std::span<const std::byte> memory) override {
    copy(memory, place_of(block, memory), {.is_write = true, .block = block});
    traffic_.bytes_written += static_cast<std::int64_t>(memory.size());
  }

  void wait(int block) override { (void)offsets_.bytes(block); }
  [[nodiscard]] bool in_flight(int block) const override {
    (void)offsets_.bytes(block);
    return false;
  }

  std::shared_ptr<std::byte> map(int first, int last) override {
    const std::int64_t bytes = offsets_.bytes(first, last);
    const Part& part = part_of(first);
    if (&part != &part_of(last - 1)) {
      throw std::logic_error(fmt::format(
          "[offload] blocks {} to {} are mapped together, but were not made "
          "together.",
          first, last - 1));
    }
    return {part.held,
            part.held->memory.part(offsets_.begin(first) - part.begin, bytes)
                .data()};
  }
  void page_out(int /*first*/, int /*last*/, std::byte* /*mapped*/) override {}

  [[nodiscard]] std::string describe() const override {
    return fmt::format("copies, {} bytes of host memory",
                       offsets_.total_bytes());
  }
  [[nodiscard]] std::int64_t held_bytes() const override {
    return offsets_.total_bytes();
  }
  [[nodiscard]] OffloadTraffic traffic() const override { return traffic_; }

  void record_transfers(bool on) override { log_.record(on); }
  std::vector<TransferSpan> take_transfers() override { return log_.take(); }

 private:
  struct Held {
    Held(HostPool& pool, std::int64_t bytes)
        : share(pool, bytes), memory(bytes, "offloaded blocks") {}
    HostShare share;
    detail::AlignedMemory memory;
  };
  /// Blocks that were made together.
  struct Part {
    int first = 0;
    std::int64_t begin = 0;
    std::shared_ptr<Held> held;  // also by those who mapped blocks
  };

  void add(const std::vector<std::int64_t>& block_bytes,
           std::string_view caller) {
    BlockOffsets offsets = offsets_;
    offsets.add(block_bytes, caller);
    const std::int64_t begin = offsets_.total_bytes();
    parts_.push_back(
        {.first = offsets_.num_blocks(),
         .begin = begin,
         .held = std::make_shared<Held>(pool_, offsets.total_bytes() - begin)});
    offsets_ = std::move(offsets);
  }

  [[nodiscard]] const Part& part_of(int block) const {
    return *std::prev(
        std::ranges::upper_bound(parts_, block, {}, &Part::first));
  }

  [[nodiscard]] std::span<std::byte> place_of(
      int block, std::span<const std::byte> memory) const {
    offsets_.check_memory(block, memory);
    const Part& part = part_of(block);
    return part.held->memory.part(offsets_.begin(block) - part.begin,
                                  offsets_.bytes(block));
  }

  void copy(std::span<const std::byte> from, std::span<std::byte> to,
            TransferSpan span) {
    using Clock = std::chrono::steady_clock;
    span.bytes = static_cast<std::int64_t>(from.size());
    span.begin_ns = detail::nanoseconds(Clock::now());
    std::ranges::copy(from, to.begin());
    span.end_ns = detail::nanoseconds(Clock::now());
    traffic_.seconds_in_flight +=
        static_cast<double>(span.end_ns - span.begin_ns) / 1e9;
    log_.add(span);
  }

  HostPool& pool_;
  BlockOffsets offsets_;
  std::vector<Part> parts_;  // one, before any were added
  OffloadTraffic traffic_;
  detail::TransferLog log_;
};

}  // namespace

std::int64_t HostPool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

std::int64_t HostPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

void HostPool::take(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - held_bytes_) {
    throw OffloadError(fmt::format(
        "[HostPool] {} bytes are wanted, and {} of {} are held already: raise "
        "the limit of the pool, or offload less.",
        bytes, held_bytes_, limit_bytes_));
  }
  held_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
}

void HostPool::give_back(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  held_bytes_ -= bytes;
}

std::unique_ptr<OffloadStore> make_host_store(
    const std::vector<std::int64_t>& block_bytes, HostPool& pool) {
  return std::make_unique<HostStore>(block_bytes, pool);
}

}  // namespace accordion
