// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accordion {

/// Files of a checkpoint are checksummed in blocks of this many bytes, so that
/// a part that is read can be verified without the rest.
inline constexpr std::int64_t kChecksumBlockBytes = 1 << 20;

/// XXH3, 64 bits, seed 0: finds what disks and transfers do to data, not what
/// someone does who wants two contents to collide.
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// 16 digits, as checksums are written in a checkpoint's index.
[[nodiscard]] std::string checksum_text(std::uint64_t checksum);

/// The checksums of the blocks of a file that is written from its start to its
/// end, in pieces of any size.
class BlockChecksums {
 public:
  BlockChecksums();
  ~BlockChecksums();
  BlockChecksums(BlockChecksums&&) noexcept;
  BlockChecksums& operator=(BlockChecksums&&) noexcept;

  /// The bytes that follow. Bytes up to the end of a block are best given
  /// together: `bytes_left` in it.
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::int64_t bytes_left() const;
  /// One for each block; the last block may be shorter. Nothing is added later.
  [[nodiscard]] std::vector<std::uint64_t> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::int64_t in_block_ = 0;
  std::vector<std::uint64_t> done_;
};

}  // namespace accordion
