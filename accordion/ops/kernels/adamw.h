// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion::kernels {

/// One step of AdamW: what is the same for all elements.
struct AdamWStep {
  float gradient_scale;  ///< gradients are read times this
  float keep;            ///< 1 - lr * weight decay
  float first_weight;    ///< 1 - beta1
  float second_weight;   ///< 1 - beta2
  float beta2;
  float step_size;   ///< lr / (1 - beta1^t)
  float root_scale;  ///< 1 / sqrt(1 - beta2^t)
  float eps;
};

/// Memory of `numel` elements each; none overlap.
struct AdamWOperands {
  float* parameters;
  const float* gradients;
  float* first_moment;
  float* second_moment;
};

/// Updates parameters and moments in one pass: 16 bytes read and 12 written an
/// element.
void adamw(const AdamWOperands& operands, const AdamWStep& step,
           std::int64_t numel);

}  // namespace accordion::kernels
