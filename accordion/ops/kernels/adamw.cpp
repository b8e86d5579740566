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
    return {rounding.from(first)};
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
ACCORDION_INLINE void prefetch(
    const AdamWOperands<Parameter, Moment>& operands) {
  simd::prefetch_ahead<kBlock>(operands.parameters);
  simd::prefetch_ahead<kBlock>(operands.gradients);
  simd::prefetch_ahead<kBlock>(operands.first_moment);
  simd::prefetch_ahead<kBlock>(operands.second_moment);
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

/// The copies are read in the next forward, by every rank: stored past the
/// caches, through which everything else passes meanwhile.
template <bool kCopies, class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update_blocks(const AdamWOperands<Parameter, Moment>& all,
                                    const AdamWStep& step, std::int64_t numel,
                                    Rounding rounding) {
  std::int64_t first = kCopies ? unaligned(all.copy, numel) : 0;
  update_some<kCopies>(all, step, first, rounding);
  for (; first + kBlock <= numel; first += kBlock) {
    alignas(simd::kLineBytes) Bf16 copy[kBlock];
    AdamWOperands<Parameter, Moment> block = all.from(first);
    block.copy = copy;
    prefetch(block);
    update_some<kCopies>(block, step, kBlock, rounding.from(first));
    if constexpr (kCopies) {
      for (std::int64_t i = 0; i < kBlock; i += kBlock / 2) {
        simd::store_line_past_cache(all.copy + first + i, copy + i);
      }
    }
  }
  update_some<kCopies>(all.from(first), step, numel - first,
                       rounding.from(first));
  if constexpr (kCopies) {
    simd::finish_past_cache();
  }
}

template <class Parameter, class Moment, class Rounding>
ACCORDION_INLINE void update(const AdamWOperands<Parameter, Moment>& all,
                             const AdamWStep& step, std::int64_t numel,
                             Rounding rounding) {
  if constexpr (std::is_same_v<Parameter, float>) {
    if (all.copy != nullptr) {
      return update_blocks<true>(all, step, numel, rounding);
    }
  }
  update_blocks<false>(all, step, numel, rounding);
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
