// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accordion/offload/offload_store.h"

namespace accordion::testing {

/// A store whose transfers move their bytes when the test says so, or when they
/// are waited for; keeps a list of what it was asked.
class PlayedStore final : public OffloadStore {
 public:
  explicit PlayedStore(const std::vector<std::int64_t>& block_bytes) {
    add_blocks(block_bytes);
  }
  void add_blocks(const std::vector<std::int64_t>& block_bytes) override {
    for (const std::int64_t bytes : block_bytes) {
      blocks_.push_back(
          {.bytes = std::vector<std::byte>(
               static_cast<std::size_t>(offload_aligned(bytes)))});
    }
  }
  ~PlayedStore() override {
    for (int block = 0; block < std::ssize(blocks_); ++block) {
      finish(block);  // into memory that has to be there
    }
  }

  void start_read(int block, std::span<std::byte> memory) override {
    log_.push_back("read " + std::to_string(block));
    at(block).read = memory;
  }
  void start_write(int block, std::span<const std::byte> memory) override {
    log_.push_back("write " + std::to_string(block));
    at(block).write = memory;
  }
  void wait(int block) override {
    if (in_flight(block)) {
      log_.push_back("wait " + std::to_string(block));
      finish(block);
    }
    if (at(block).fails) {
      throw OffloadError("block " + std::to_string(block) + " failed");
    }
  }
  [[nodiscard]] bool in_flight(int block) const override {
    const Block& which = blocks_.at(static_cast<std::size_t>(block));
    return which.read || which.write;
  }
  std::shared_ptr<std::byte> map(int first, int /*last*/) override {
    return {std::shared_ptr<void>(), at(first).bytes.data()};
  }
  void page_out(int /*first*/, int /*last*/, std::byte* /*mapped*/) override {}
  [[nodiscard]] std::string describe() const override { return "played"; }
  [[nodiscard]] std::int64_t held_bytes() const override { return 0; }
  void record_transfers(bool /*on*/) override {}
  std::vector<TransferSpan> take_transfers() override { return {}; }
  [[nodiscard]] OffloadTraffic traffic() const override {
    return {.bytes_read = 1, .bytes_written = 2, .seconds_in_flight = 3};
  }

  /// Ends the transfer of a block.
  void finish(int block) {
    Block& which = at(block);
    if (which.read) {
      std::ranges::copy(which.bytes, which.read->begin());
    }
    if (which.write) {
      std::ranges::copy(*which.write, which.bytes.begin());
    }
    which.read.reset();
    which.write.reset();
  }
  /// Transfers of the block fail from now on.
  void break_block(int block) { at(block).fails = true; }
  /// What happened since the last call.
  std::vector<std::string> take_log() { return std::exchange(log_, {}); }

 private:
  struct Block {
    std::vector<std::byte> bytes;
    std::optional<std::span<std::byte>> read = {};
    std::optional<std::span<const std::byte>> write = {};
    bool fails = false;
  };
  Block& at(int block) { return blocks_.at(static_cast<std::size_t>(block)); }

  std::vector<Block> blocks_;
  std::vector<std::string> log_;
};

}  // namespace accordion::testing
