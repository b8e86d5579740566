// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "accordion/comm/dtype.h"

namespace accordion {

/// LibTorch's element type in the words of the torch-free parts.
///
/// Throws c10::ValueError for a type that parameters cannot have
inline DType to_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return DType::Float32;
    case c10::kBFloat16:
      return DType::Bfloat16;
    case c10::kHalf:
      return DType::Float16;
    case c10::kDouble:
      return DType::Float64;
    default:
      TORCH_CHECK_VALUE(false, "[fully_shard] dtype ", c10::toString(type),
                        " cannot be sharded; parameters are fp32, bf16, fp16 "
                        "or fp64");
  }
}

inline c10::ScalarType to_scalar_type(DType type) {
  switch (type) {
    case DType::Float32:
      return c10::kFloat;
    case DType::Bfloat16:
      return c10::kBFloat16;
    case DType::Float16:
      return c10::kHalf;
    case DType::Float64:
      return c10::kDouble;
    default:
      TORCH_INTERNAL_ASSERT(false, "no parameter has dtype ", name(type));
  }
}

}  // namespace accordion
