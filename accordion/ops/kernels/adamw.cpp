// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/adamw.h"

#include <cmath>

#include "accordion/ops/kernels/vectorize.h"

namespace accordion::kernels {

ACCORDION_VECTORIZE
void adamw(const AdamWOperands& operands, const AdamWStep& step,
           std::int64_t numel) {
  float* __restrict parameters = operands.parameters;
  const float* __restrict gradients = operands.gradients;
  float* __restrict first_moment = operands.first_moment;
  float* __restrict second_moment = operands.second_moment;
  const AdamWStep s = step;
  for (std::int64_t i = 0; i < numel; ++i) {
    const float gradient = gradients[i] * s.gradient_scale;
    const float first =
        first_moment[i] + s.first_weight * (gradient - first_moment[i]);
    const float second =
        s.beta2 * second_moment[i] + s.second_weight * gradient * gradient;
    const float denominator = std::sqrt(second) * s.root_scale + s.eps;
    parameters[i] = parameters[i] * s.keep - s.step_size * first / denominator;
    first_moment[i] = first;
    second_moment[i] = second;
  }
}

}  // namespace accordion::kernels
