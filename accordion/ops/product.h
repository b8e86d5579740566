// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "accordion/ops/kernels/vectorize.h"

namespace accordion::ops::detail {

/// Where the operands of one small matrix product lie: c [m, n], a [m, k],
/// b [k, n] with paired rows (see [Note: paired rows]); strides in elements.
struct ProductShape {
  int64_t m;
  int64_t n;
  int64_t k;  ///< even where b is bf16
  int64_t a_stride;
  int64_t b_stride;
  int64_t c_stride;
};

/// c = a b, or c += a b where `accumulate`; computed in fp32 by one thread,
/// without the cost of an operator call.
void multiply(const ProductShape& shape, const float* a, const float* b,
              float* c, bool accumulate);
void multiply(const ProductShape& shape, const kernels::Bf16* a,
              const kernels::Bf16* b, float* c, bool accumulate);

/// Whether multiply works for a dtype on this processor. In bf16 it needs
/// instructions that LibTorch offers no question about, so the first call tries
/// a product and looks at the result.
bool can_multiply(at::ScalarType dtype);

}  // namespace accordion::ops::detail
