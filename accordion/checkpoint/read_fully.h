// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace accordion::detail {

/// Reads bytes of an open file from `offset` on, as many as `into` holds. What
/// went wrong; empty if nothing did.
[[nodiscard]] std::string read_fully(int descriptor, std::int64_t offset,
                                     std::span<std::byte> into);

}  // namespace accordion::detail
