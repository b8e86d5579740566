// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace accordion::ops {

/// Rows of a table: LibTorch's lookup, also on meta ([Note: operators on meta]
/// in element.h), where that has no backward.
///
/// Shapes  weight [vocab, width], tokens [...] of int64 -> [..., width]
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& tokens);

}  // namespace accordion::ops
