// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion::detail {

/// Converts `numel` elements, which lie as in a file, to fp32.
using ToFp32 = void (*)(const void* from, float* to, std::int64_t numel);

/// The conversion for a safetensors dtype: F32, BF16 or F16; null for others.
ToFp32 conversion_to_fp32(std::string_view dtype);

/// Converts `numel` elements, which lie as in a file, to fp64. Integers beyond
/// 2^53 are rounded.
///
/// Requires  `from` is aligned for its elements
using ToFp64 = void (*)(const void* from, double* to, std::int64_t numel);

/// The conversion for a safetensors dtype: floating point down to 16 bits,
/// integers and BOOL (0 or 1); null for others.
ToFp64 conversion_to_fp64(std::string_view dtype);

/// Converts fp32 to `numel` elements as they lie in a file, rounding to nearest
/// even; a NaN stays a NaN.
using FromFp32 = void (*)(const float* from, void* to, std::int64_t numel);

/// The same dtypes the other way.
FromFp32 conversion_from_fp32(std::string_view dtype);

}  // namespace accordion::detail
