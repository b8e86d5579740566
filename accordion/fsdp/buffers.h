// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

namespace accordion {

/// Casts the floating-point buffers of `root` to `dtype`, less those of batch
/// and instance norms: their running statistics need range and precision, and
/// their kernels take inputs of another dtype.
void cast_buffers(const torch::nn::Module& root, c10::ScalarType dtype);

}  // namespace accordion
