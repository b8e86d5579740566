// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion::detail {

/// Converts `numel` elements, which lie as in a file, to fp32.
using ToFp32 = void (*)(const void* from, float* to, std::int64_t numel);

/// The conversion for a safetensors dtype: F32, BF16 or F16; null for others.
ToFp32 conversion_to_fp32(std::string_view dtype);

}  // namespace accordion::detail
