// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/block_checksum.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace accordion {

struct BlockChecksums::State {
  XXH3_state_t hash;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

BlockChecksums::BlockChecksums() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->hash);
}

BlockChecksums::~BlockChecksums() = default;
BlockChecksums::BlockChecksums(BlockChecksums&&) noexcept = default;
BlockChecksums& BlockChecksums::operator=(BlockChecksums&&) noexcept = default;

std::int64_t BlockChecksums::bytes_left() const {
  return kChecksumBlockBytes - in_block_;
}

void BlockChecksums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto now =
        std::min(bytes.size(), static_cast<std::size_t>(bytes_left()));
    XXH3_64bits_update(&state_->hash, bytes.data(), now);
    bytes = bytes.subspan(now);
    in_block_ += static_cast<std::int64_t>(now);
    if (bytes_left() == 0) {
      done_.push_back(XXH3_64bits_digest(&state_->hash));
      XXH3_64bits_reset(&state_->hash);
      in_block_ = 0;
    }
  }
}

std::vector<std::uint64_t> BlockChecksums::finish() {
  if (in_block_ > 0) {
    done_.push_back(XXH3_64bits_digest(&state_->hash));
    in_block_ = 0;
  }
  return std::move(done_);
}

}  // namespace accordion
