// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/philox.h"

namespace accordion {

Philox::Block Philox::block(std::uint64_t index, std::uint64_t stream) const {
  auto low_key = static_cast<std::uint32_t>(key_);
  auto high_key = static_cast<std::uint32_t>(key_ >> 32);
  Block c = {static_cast<std::uint32_t>(index),
             static_cast<std::uint32_t>(index >> 32),
             static_cast<std::uint32_t>(stream),
             static_cast<std::uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(second >> 32) ^ c[1] ^ low_key,
         static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32) ^ c[3] ^ high_key,
         static_cast<std::uint32_t>(first)};
    low_key += 0x9E3779B9U;   // golden ratio
    high_key += 0xBB67AE85U;  // sqrt(3) - 1
  }
  return c;
}

double to_unit(std::uint32_t word) {
  return (word + 1.0) * 0x1p-32;
}

}  // namespace accordion
