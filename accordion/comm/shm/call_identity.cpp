// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/call_identity.h"

#include <fmt/format.h>

#include <stdexcept>

namespace accordion::detail {

CallHash::CallHash(std::string_view label) {
  for (const char c : label) {
    mix(static_cast<unsigned char>(c));
  }
}

void CallHash::mix(std::uint64_t value) {
  // The finaliser of MurmurHash3, public domain: every bit reaches every bit.
  value += hash_ * 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53;
  hash_ = value ^ (value >> 33);
}

void CallHash::mix(const GatherPart& part) {
  mix(static_cast<std::uint64_t>(part.numel));
  mix(static_cast<std::uint64_t>(part.full_dtype));
}

void CallHash::mix(const ReducePart& part) {
  mix(static_cast<std::uint64_t>(part.numel));
  mix(static_cast<std::uint64_t>(part.full_dtype));
  mix(static_cast<std::uint64_t>(part.reduce_dtype));
  mix(std::bit_cast<std::uint64_t>(part.scale));
}

void check_in_buffer(const void* full, std::int64_t bytes,
                     const CommBuffer& buffer, std::string_view where) {
  const auto distance = static_cast<const std::byte*>(full) - buffer.data();
  if (distance < 0 || distance + bytes > buffer.bytes()) {
    throw std::invalid_argument(fmt::format(
        "[{}] a part of {} bytes does not lie in the buffer of {} bytes that "
        "was given for it",
        where, bytes, buffer.bytes()));
  }
}

void check_alias(const ReducePart& part, std::string_view where) {
  if (part.local == part.full &&
      (part.local_dtype != part.full_dtype || part.accumulate)) {
    throw std::invalid_argument(fmt::format(
        "[{}] local is the memory of full: then both need one dtype and "
        "accumulate must be off",
        where));
  }
}

}  // namespace accordion::detail
