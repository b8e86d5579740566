// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// A residual stream behind a branch, and its norm.
struct NormedSum {
  at::Tensor sum;
  Operand normed;
};

}  // namespace accordion::ops
