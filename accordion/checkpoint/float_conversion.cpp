// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/float_conversion.h"

#include <bit>
#include <cstring>

namespace accordion::detail {
namespace {

void from_f32(const void* from, float* to, std::int64_t numel) {
  std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
}

void from_bf16(const void* from, float* to, std::int64_t numel) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
  }
}

/// 1 sign bit, 5 of exponent with bias 15, 10 of fraction.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffU)
                                  << 13;
  // Put in place, the exponent is too small by 127 - 15; a product with
  // 2^112 corrects it, and makes a subnormal half a normal float.
  float value = std::bit_cast<float>(magnitude) * 0x1p112F;
  if (magnitude >= 0x0f800000U) {  // infinity and NaN
    value = std::bit_cast<float>(magnitude | 0x7f800000U);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

void from_f16(const void* from, float* to, std::int64_t numel) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = half_to_float(bits[i]);
  }
}

}  // namespace

ToFp32 conversion_to_fp32(std::string_view dtype) {
  if (dtype == "F32") {
    return from_f32;
  }
  if (dtype == "BF16") {
    return from_bf16;
  }
  return dtype == "F16" ? from_f16 : nullptr;
}

}  // namespace accordion::detail
