// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

template <class T>
ACCORDION_INLINE float largest(const T* logits, std::int64_t classes) {
  float result = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : result)
  for (std::int64_t i = 0; i < classes; ++i) {
    const float value = to_float(logits[i]);
    result = value > result ? value : result;
  }
  return result;
}

template <class T>
ACCORDION_INLINE bool is_first_largest(const T* logits, std::int64_t target,
                                       float maximum) {
  if (to_float(logits[target]) != maximum) {
    return false;
  }
  for (std::int64_t i = 0; i < target; ++i) {
    if (to_float(logits[i]) == maximum) {
      return false;
    }
  }
  return true;
}

template <class T>
ACCORDION_INLINE RowLoss row(const T* logits, std::int64_t target, T* gradient,
                             float scale, std::int64_t classes) {
  const float maximum = largest(logits, classes);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < classes; ++i) {
    sum += fast_exp(to_float(logits[i]) - maximum);
  }
  const float target_logit = to_float(logits[target]);
  const RowLoss result{std::log(sum) + (maximum - target_logit),
                       is_first_largest(logits, target, maximum)};
  if (gradient != nullptr) {
    const float share = scale / sum;
#pragma omp simd
    for (std::int64_t i = 0; i < classes; ++i) {
      store(gradient[i], share * fast_exp(to_float(logits[i]) - maximum));
    }
    // p - 1 from the unrounded p: in bf16, p has lost too many digits.
    store(gradient[target], share * fast_exp(target_logit - maximum) - scale);
  }
  return result;
}

}  // namespace

ACCORDION_VECTORIZE
RowLoss cross_entropy(const float* logits, std::int64_t target, float* gradient,
                      float scale, std::int64_t classes) {
  return row(logits, target, gradient, scale, classes);
}

ACCORDION_VECTORIZE
RowLoss cross_entropy(const Bf16* logits, std::int64_t target, Bf16* gradient,
                      float scale, std::int64_t classes) {
  return row(logits, target, gradient, scale, classes);
}

ACCORDION_VECTORIZE
RowLoss cross_entropy(const Fp16* logits, std::int64_t target, Fp16* gradient,
                      float scale, std::int64_t classes) {
  return row(logits, target, gradient, scale, classes);
}

}  // namespace accordion::kernels
