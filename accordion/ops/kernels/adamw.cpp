// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "accordion/ops/kernels/stochastic_rounding.h"
#include "accordion/simd/past_cache.h"

namespace accordion::kernels {
namespace {

/// An element after the step, before it is rounded.
struct Updated {
  float parameter;
  float first;
  float second;
};

struct ToNearest {
  [[nodiscard]] ACCORDION_INLINE ToNearest from(std::int64_t /*first*/) const {
    return *this;
  }

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

  [[nodiscard]] ACCORDION_INLINE Stochastically from(std::int64_t first) const {
    AdamWRounding shifted = rounding;
    shifted.first_element += static_cast<std::uint32_t>(first);
    return {shifted};
  }

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

/// A line of copies at least, and of everything else.
constexpr std::int64_t kBlock = 64;

/// Elements that are updated one by one until copies start a line.
ACCORDION_INLINE std::int64_t unaligned(const Bf16* copy, std::int64_t numel) {
  const auto past = reinterpret_cast<std::uintptr_t>(copy) % simd::kLineBytes;
  const auto missing = (simd::kLineBytes - static_cast<std::int64_t>(past)) %
                       simd::kLineBytes / std::int64_t{sizeof(Bf16)};
  return std::min(missing, numel);
}

template <class Parameter, class Moment>
ACCORDION_INLINE AdamWOperands<Parameter, Moment> from(
    const AdamWOperands<Parameter, Moment>& all, std::int64_t first,
    Bf16* copy) {
  return {all.parameters + first, all.gradients + first,
          all.first_moment + first, all.second_moment + first, copy};
}

template <class Parameter, class Moment>
ACCORDION_INLINE void prefetch(const AdamWOperands<Parameter, Moment>& all,
                               std::int64_t first) {
  simd::prefetch_ahead<kBlock>(all.parameters + first);
  simd::prefetch_ahead<kBlock>(all.gradients + first);
  simd::prefetch_ahead<kBlock>(all.first_moment + first);
  simd::prefetch_ahead<kBlock>(all.second_moment + first);
}

template <bool kCopies, class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update_some(
    const AdamWOperands<Parameter, Moment>& operands, const AdamWStep& step,
    std::int64_t numel, Rounding rounding) {
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

template <class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update_alone(const AdamWOperands<Parameter, Moment>& all,
                                   const AdamWStep& step, std::int64_t numel,
                                   Rounding rounding) {
  std::int64_t first = 0;
  for (; first + kBlock <= numel; first += kBlock) {
    prefetch(all, first);
    update_some<false>(from(all, first, nullptr), step, kBlock,
                       rounding.from(first));
  }
  update_some<false>(from(all, first, nullptr), step, numel - first,
                     rounding.from(first));
}

/// The copies are read in the next forward, by every rank: stored past the
/// caches, through which everything else passes meanwhile.
template <class Moment, class Rounding>
ACCORDION_INLINE void update_and_copy(const AdamWOperands<float, Moment>& all,
                                      const AdamWStep& step, std::int64_t numel,
                                      Rounding rounding) {
  std::int64_t first = unaligned(all.copy, numel);
  update_some<true>(all, step, first, rounding);
  for (; first + kBlock <= numel; first += kBlock) {
    alignas(simd::kLineBytes) Bf16 copy[kBlock];
    prefetch(all, first);
    update_some<true>(from(all, first, copy), step, kBlock,
                      rounding.from(first));
    for (std::int64_t i = 0; i < kBlock; i += kBlock / 2) {
      simd::store_line_past_cache(all.copy + first + i, copy + i);
    }
  }
  update_some<true>(from(all, first, all.copy + first), step, numel - first,
                    rounding.from(first));
  simd::finish_past_cache();
}

template <class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update(const AdamWOperands<Parameter, Moment>& all,
                             const AdamWStep& step, std::int64_t numel,
                             Rounding rounding) {
  if constexpr (std::is_same_v<Parameter, float>) {
    if (all.copy != nullptr) {
      return update_and_copy(all, step, numel, rounding);
    }
  }
  update_alone(all, step, numel, rounding);
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
