// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "accordion/comm/element_kernels.h"
#include "accordion/comm/elements.h"

namespace accordion::detail {
namespace {

// Elements that pass through fp32 at a time.
constexpr std::int64_t kBlock = 512;

const std::uint16_t* halves(const void* data) {
  return static_cast<const std::uint16_t*>(data);
}

void to_floats(float* to, const void* from, DType dtype, std::int64_t numel) {
  switch (dtype) {
    case DType::Float32:
      std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
      return;
    case DType::Bfloat16:
      return bf16_to_fp32(to, halves(from), numel);
    case DType::Float16:
      return fp16_to_fp32(to, halves(from), numel);
    case DType::Float64:
      std::copy_n(static_cast<const double*>(from), numel, to);
      return;
    default:
      throw std::logic_error("[comm] not a floating point dtype");
  }
}

void from_floats(void* to, DType dtype, const float* from, std::int64_t numel) {
  switch (dtype) {
    case DType::Float32:
      std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
      return;
    case DType::Bfloat16:
      return fp32_to_bf16(static_cast<std::uint16_t*>(to), from, numel);
    case DType::Float16:
      return fp32_to_fp16(static_cast<std::uint16_t*>(to), from, numel);
    case DType::Float64:
      std::copy_n(from, numel, static_cast<double*>(to));
      return;
    default:
      throw std::logic_error("[comm] not a floating point dtype");
  }
}

}  // namespace

void convert(void* to, DType to_dtype, const void* from, DType from_dtype,
             std::int64_t numel) {
  if (numel <= 0 || (to == from && to_dtype == from_dtype)) {
    return;
  }
  if (to_dtype == from_dtype) {
    std::memcpy(to, from,
                static_cast<std::size_t>(numel * element_bytes(to_dtype)));
    return;
  }
  if (from_dtype == DType::Float32) {
    return from_floats(to, to_dtype, static_cast<const float*>(from), numel);
  }
  if (to_dtype == DType::Float32) {
    return to_floats(static_cast<float*>(to), from, from_dtype, numel);
  }
  alignas(64) std::array<float, kBlock> block;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    to_floats(block.data(), offset(from, from_dtype, first), from_dtype, count);
    from_floats(offset(to, to_dtype, first), to_dtype, block.data(), count);
  }
}

void convert_past_cache(void* to, DType to_dtype, const void* from,
                        DType from_dtype, std::int64_t numel) {
  if (to == from) {
    convert(to, to_dtype, from, from_dtype, numel);
  } else if (to_dtype == from_dtype) {
    copy_past_cache(to, from, numel * element_bytes(to_dtype));
  } else if (from_dtype == DType::Float32 && to_dtype == DType::Bfloat16) {
    fp32_to_bf16_past_cache(static_cast<std::uint16_t*>(to),
                            static_cast<const float*>(from), numel);
  } else if (from_dtype == DType::Bfloat16 && to_dtype == DType::Float32) {
    bf16_to_fp32_past_cache(static_cast<float*>(to), halves(from), numel);
  } else {
    convert(to, to_dtype, from, from_dtype, numel);
  }
}

}  // namespace accordion::detail
