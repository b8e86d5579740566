// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/adamw.h"

#include <cmath>

#include "accordion/ops/kernels/stochastic_rounding.h"

namespace accordion::kernels {
namespace {

/// An element after the step, before it is rounded.
struct Updated {
  float parameter;
  float first;
  float second;
};

struct ToNearest {
  template <class Parameter, class Moment>
  ACCORDION_INLINE void put(const Updated& from, std::int64_t /*index*/,
                            Parameter& parameter, Moment& first,
                            Moment& second) const {
    store(parameter, from.parameter);
    store(first, from.first);
    store(second, from.second);
  }
};

struct Stochastically {
  AdamWRounding rounding;

  template <class Parameter, class Moment>
  ACCORDION_INLINE void put(const Updated& from, std::int64_t index,
                            Parameter& parameter, Moment& first,
                            Moment& second) const {
    const std::uint32_t element =
        rounding.first_element + static_cast<std::uint32_t>(index);
    const std::uint32_t moments = random_bits(element, rounding.moments_key);
    store(parameter, from.parameter,
          random_bits(element, rounding.parameters_key) >> 16);
    store(first, from.first, moments >> 16);
    store(second, from.second, moments & 0xffffU);
  }
};

template <bool kCopies, class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update(const AdamWOperands<Parameter, Moment>& operands,
                             const AdamWStep& step, std::int64_t numel,
                             Rounding rounding) {
  Parameter* __restrict parameters = operands.parameters;
  const Parameter* __restrict gradients = operands.gradients;
  Moment* __restrict first_moment = operands.first_moment;
  Moment* __restrict second_moment = operands.second_moment;
  Bf16* __restrict copy = operands.copy;
  const AdamWStep s = step;
#pragma omp simd
  for (std::int64_t i = 0; i < numel; ++i) {
    const float gradient = to_float(gradients[i]) * s.gradient_scale;
    const float first_before = to_float(first_moment[i]);
    const float first =
        first_before + s.first_weight * (gradient - first_before);
    const float second = s.beta2 * to_float(second_moment[i]) +
                         s.second_weight * gradient * gradient;
    const float denominator = std::sqrt(second) * s.root_scale + s.eps;
    const float parameter =
        to_float(parameters[i]) * s.keep - s.step_size * first / denominator;
    rounding.put({parameter, first, second}, i, parameters[i], first_moment[i],
                 second_moment[i]);
    if constexpr (kCopies) {
      store(copy[i], parameter);
    }
  }
}

template <class Moment, class Rounding>
ACCORDION_INLINE void update(const AdamWOperands<float, Moment>& operands,
                             const AdamWStep& step, std::int64_t numel,
                             Rounding rounding) {
  if (operands.copy != nullptr) {
    update<true>(operands, step, numel, rounding);
  } else {
    update<false>(operands, step, numel, rounding);
  }
}

template <class Moment, class Rounding>
ACCORDION_INLINE void update(const AdamWOperands<Bf16, Moment>& operands,
                             const AdamWStep& step, std::int64_t numel,
                             Rounding rounding) {
  update<false>(operands, step, numel, rounding);
}

}  // namespace

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<float, float>& operands, const AdamWStep& step,
           std::int64_t numel) {
  update(operands, step, numel, ToNearest{});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<float, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel) {
  update(operands, step, numel, ToNearest{});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<Bf16, float>& operands, const AdamWStep& step,
           std::int64_t numel) {
  update(operands, step, numel, ToNearest{});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<Bf16, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel) {
  update(operands, step, numel, ToNearest{});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<float, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding) {
  update(operands, step, numel, Stochastically{rounding});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<Bf16, float>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding) {
  update(operands, step, numel, Stochastically{rounding});
}

ACCORDION_VECTORIZE
void adamw(const AdamWOperands<Bf16, Bf16>& operands, const AdamWStep& step,
           std::int64_t numel, const AdamWRounding& rounding) {
  update(operands, step, numel, Stochastically{rounding});
}

}  // namespace accordion::kernels
