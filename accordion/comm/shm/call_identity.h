// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/shm_buffer.h"

// What a call must have in common on all ranks, and what it must fulfil on its
// own.
namespace accordion::detail {

/// Hash of everything about a call that ranks compare, beside its size.
class CallHash {
 public:
  explicit CallHash(std::string_view label);
  void mix(std::uint64_t value);
  void mix(const GatherPart& part);
  void mix(const ReducePart& part);
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xacc0;
};

/// The hash of a call over `parts`, whose `full` lies in this rank's memory of
/// `segment`, or anywhere when that is null.
template <typename Part>
std::uint64_t hash_call(std::string_view label, std::span<const Part> parts,
                        const Segment* segment, int rank) {
  CallHash hash(label);
  hash.mix(segment == nullptr ? 0
                              : static_cast<std::uint64_t>(segment->id) + 1);
  for (const Part& part : parts) {
    hash.mix(part);
    if (segment != nullptr) {
      hash.mix(static_cast<std::uint64_t>(
          static_cast<const std::byte*>(part.full) - segment->base(rank)));
    }
  }
  return hash.value();
}

/// Throws std::invalid_argument unless `bytes` bytes at `full` lie in `buffer`.
void check_in_buffer(const void* full, std::int64_t bytes,
                     const CommBuffer& buffer, std::string_view where);

/// Throws std::invalid_argument where `local` is `full` but cannot be.
void check_alias(const ReducePart& part, std::string_view where);

}  // namespace accordion::detail
