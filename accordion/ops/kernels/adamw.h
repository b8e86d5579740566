// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

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
template <class Parameter, class Moment>
struct AdamWOperands {
  Parameter* parameters;
  const Parameter* gradients;
  Moment* first_moment;
  Moment* second_moment;
  /// Of fp32 parameters, rounded to nearest: what they are computed with. Null:
  /// none.
  Bf16* copy = nullptr;

  /// Those of the elements from `first` on.
  [[nodiscard]] ACCORDION_INLINE AdamWOperands from(std::int64_t first) const {
    return {parameters + first, gradients + first, first_moment + first,
            second_moment + first, copy != nullptr ? copy + first : nullptr};
  }
};

/// Updates parameters and moments in one pass, each element read and written
/// once: 28 bytes an element in fp32, 20 with bf16 moments, 14 all in bf16; 2
/// more with a copy.
/// Arithmetic is in fp32; parameters move by the moments before those are
/// rounded, to nearest.
void adamw(const AdamWOperands<float, float>& operands, const AdamWStep& step,
           std::int64_t numel);
void adamw(const AdamWOperands<float, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel);
void adamw(const AdamWOperands<Bf16, float>& operands, const AdamWStep& step,
           std::int64_t numel);
void adamw(const AdamWOperands<Bf16, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel);

/// Where the bits of stochastic rounding come from ([Note: stochastic
/// rounding]). Moments have a key of their own: what rounds a parameter is not
/// what rounded the moments that moved it.
struct AdamWRounding {
  std::array<std::uint32_t, 2> moments_key;
  std::array<std::uint32_t, 2> parameters_key;
  std::uint32_t first_element;  ///< number of the operands' first, modulo 2^32

  /// That of the operands from `first` on.
  [[nodiscard]] ACCORDION_INLINE AdamWRounding from(std::int64_t first) const {
    return {moments_key, parameters_key,
            first_element + static_cast<std::uint32_t>(first)};
  }
};

/// The same with stochastic rounding of what is bf16.
void adamw(const AdamWOperands<float, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding);
void adamw(const AdamWOperands<Bf16, float>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding);
void adamw(const AdamWOperands<Bf16, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding);

}  // namespace accordion::kernels
