// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/float_conversion.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "accordion/comm/element_kernels.h"

namespace accordion::detail {
namespace {

void from_f32(const void* from, float* to, std::int64_t numel) {
  std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
}

float brain_to_float(std::uint16_t brain) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16);
}

void from_bf16(const void* from, float* to, std::int64_t numel) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = brain_to_float(bits[i]);
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

template <class Element>
double number(Element element) {
  return static_cast<double>(element);
}

double truth(std::uint8_t element) {
  return element == 0 ? 0.0 : 1.0;
}

template <class Element, auto kConvert>
void to_fp64(const void* from, double* to, std::int64_t numel) {
  const auto* elements = static_cast<const Element*>(from);
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = kConvert(elements[i]);
  }
}

template <class Element>
constexpr ToFp64 kNumbers = to_fp64<Element, number<Element>>;

constexpr std::array<std::pair<std::string_view, ToFp64>, 13> kToFp64 = {
    {{"F64", kNumbers<double>},
     {"F32", kNumbers<float>},
     {"F16", to_fp64<std::uint16_t, half_to_float>},
     {"BF16", to_fp64<std::uint16_t, brain_to_float>},
     {"I64", kNumbers<std::int64_t>},
     {"I32", kNumbers<std::int32_t>},
     {"I16", kNumbers<std::int16_t>},
     {"I8", kNumbers<std::int8_t>},
     {"U64", kNumbers<std::uint64_t>},
     {"U32", kNumbers<std::uint32_t>},
     {"U16", kNumbers<std::uint16_t>},
     {"U8", kNumbers<std::uint8_t>},
     {"BOOL", to_fp64<std::uint8_t, truth>}}};

void to_f32(const float* from, void* to, std::int64_t numel) {
  std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
}

void to_bf16(const float* from, void* to, std::int64_t numel) {
  fp32_to_bf16(static_cast<std::uint16_t*>(to), from, numel);
}

void to_f16(const float* from, void* to, std::int64_t numel) {
  fp32_to_fp16(static_cast<std::uint16_t*>(to), from, numel);
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

ToFp64 conversion_to_fp64(std::string_view dtype) {
  for (const auto& [name, convert] : kToFp64) {
    if (name == dtype) {
      return convert;
    }
  }
  return nullptr;
}

FromFp32 conversion_from_fp32(std::string_view dtype) {
  if (dtype == "F32") {
    return to_f32;
  }
  if (dtype == "BF16") {
    return to_bf16;
  }
  return dtype == "F16" ? to_f16 : nullptr;
}

}  // namespace accordion::detail
