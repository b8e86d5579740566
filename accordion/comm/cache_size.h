// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion::detail {

/// Whether an operation that touches so many bytes, on all ranks of this host,
/// had better leave the caches alone: whether it would fill half of the last
/// level, which other operands need too, or what of it can be counted on.
[[nodiscard]] bool exceeds_caches(std::int64_t bytes);

}  // namespace accordion::detail
