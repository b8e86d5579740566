// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

namespace accordion {

/// Whether a module computes in its stored dtype whatever the precision of the
/// rest: batch and instance norms, whose running statistics need range and
/// precision. LibTorch's kernels take inputs of lower precision beside fp32
/// parameters and statistics, but not statistics of another dtype than
/// parameters.
[[nodiscard]] bool keeps_stored_dtype(const torch::nn::Module& module);

/// Casts the floating-point buffers of `root` to `dtype`, less those of modules
/// that keep their stored dtype.
void cast_buffers(const torch::nn::Module& root, c10::ScalarType dtype);

}  // namespace accordion
