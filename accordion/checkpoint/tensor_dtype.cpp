// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/tensor_dtype.h"

#include <array>
#include <utility>

#include <c10/util/Exception.h>

namespace accordion::detail {

namespace {

constexpr std::array<std::pair<c10::ScalarType, const char*>, 12> kTypes = {{
    {c10::kDouble, "F64"},
    {c10::kFloat, "F32"},
    {c10::kHalf, "F16"},
    {c10::kBFloat16, "BF16"},
    {c10::kLong, "I64"},
    {c10::kInt, "I32"},
    {c10::kShort, "I16"},
    {c10::kChar, "I8"},
    {c10::kByte, "U8"},
    {c10::kBool, "BOOL"},
    {c10::kFloat8_e4m3fn, "F8_E4M3"},
    {c10::kFloat8_e5m2, "F8_E5M2"},
}};

}  // namespace

std::string safetensors_dtype(c10::ScalarType type) {
  for (const auto& [scalar, name] : kTypes) {
    if (scalar == type) {
      return name;
    }
  }
  TORCH_CHECK_VALUE(false, "[checkpoint] safetensors has no dtype ",
                    c10::toString(type));
}

c10::ScalarType scalar_type_of(const std::string& dtype) {
  for (const auto& [scalar, name] : kTypes) {
    if (name == dtype) {
      return scalar;
    }
  }
  TORCH_CHECK_VALUE(false, "[checkpoint] LibTorch has no tensors of dtype '",
                    dtype, "'");
}

}  // namespace accordion::detail
