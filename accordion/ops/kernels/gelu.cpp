// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/gelu.h"

namespace accordion::kernels {
namespace {

/// What both directions need at one x: the share of x that passes, and the
/// derivative of x times it.
struct Gate {
  float share;
  float slope;
};

// Beyond this the exponential falls below the normal floats.
constexpr float kLargest = 12.5F;

/// The normal distribution up to x, to a few units in the last place on both
/// sides of 0, where 1/2 (1 + erf) would cancel on one.
///
/// Up to -|x| it is exp(-x^2 / 2) q(t) with t = 1 / (1 + 0.3 |x|); q was fitted
/// for the least largest relative error up to 12.5: 1e-7. The derivative takes
/// the density from the same exponential.
struct Exact {
  static ACCORDION_INLINE Gate at(float x) {
    float distance = x < 0 ? -x : x;
    distance = distance > kLargest ? kLargest : distance;
    const float t = 1.0F / (1.0F + 0.3F * distance);
    float q = 0.036464976F;
    q = q * t - 0.16051342F;
    q = q * t + 0.21209482F;
    q = q * t - 0.059010075F;
    q = q * t + 0.13140696F;
    q = q * t + 0.099041058F;
    q = q * t + 0.12089575F;
    q = q * t + 0.11961989F;
    const float bell = fast_exp(-0.5F * distance * distance);
    const float tail = bell * q * t;
    const float share = x < 0 ? tail : 1.0F - tail;
    const float density = 0.39894228F * bell;
    return {share, share + (x < 0 ? -distance : distance) * density};
  }
};

/// 1/2 (1 + tanh(u)) is sigmoid(2 u), which needs no tanh.
struct Tanh {
  static ACCORDION_INLINE Gate at(float x) {
    // From here on the sigmoid is 0 or 1 in fp32, and x^3 may overflow.
    constexpr float kSaturated = 9.5F;
    constexpr float kTwice = 1.5957691F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    x = x < -kSaturated ? -kSaturated : x;
    x = x > kSaturated ? kSaturated : x;
    const float argument = kTwice * x * (1.0F + kCubic * x * x);
    const float sigmoid = 1.0F / (1.0F + fast_exp(-argument));
    const float rise = kTwice * (1.0F + 3.0F * kCubic * x * x);
    return {sigmoid, sigmoid + x * sigmoid * (1.0F - sigmoid) * rise};
  }
};

template <class Form, bool HasBias, class T>
ACCORDION_INLINE void forward_rows(const GeluForward<T>& of) {
  for (std::int64_t row = 0; row < of.rows; ++row) {
    const T* x = of.x + row * of.width;
    T* y = of.y + row * of.width;
#pragma omp simd
    for (std::int64_t i = 0; i < of.width; ++i) {
      const float value =
          HasBias ? to_float(x[i]) + to_float(of.bias[i]) : to_float(x[i]);
      store(y[i], value * Form::at(value).share);
    }
  }
}

template <class Form, bool HasBias, class T>
ACCORDION_INLINE void backward_rows(const GeluBackward<T>& of) {
  for (std::int64_t row = 0; row < of.rows; ++row) {
    const T* x = of.x + row * of.width;
    const T* dy = of.dy + row * of.width;
    T* dx = of.dx + row * of.width;
#pragma omp simd
    for (std::int64_t i = 0; i < of.width; ++i) {
      const float value =
          HasBias ? to_float(x[i]) + to_float(of.bias[i]) : to_float(x[i]);
      const float gradient = to_float(dy[i]) * Form::at(value).slope;
      store(dx[i], gradient);
      if (HasBias) {
        of.dbias[i] += gradient;
      }
    }
  }
}

template <class T>
ACCORDION_INLINE void forward(GeluForm form, const GeluForward<T>& of) {
  const bool has_bias = of.bias != nullptr;
  if (form == GeluForm::Exact) {
    has_bias ? forward_rows<Exact, true>(of) : forward_rows<Exact, false>(of);
  } else {
    has_bias ? forward_rows<Tanh, true>(of) : forward_rows<Tanh, false>(of);
  }
}

template <class T>
ACCORDION_INLINE void backward(GeluForm form, const GeluBackward<T>& of) {
  const bool has_bias = of.bias != nullptr;
  if (form == GeluForm::Exact) {
    has_bias ? backward_rows<Exact, true>(of) : backward_rows<Exact, false>(of);
  } else {
    has_bias ? backward_rows<Tanh, true>(of) : backward_rows<Tanh, false>(of);
  }
}

}  // namespace

ACCORDION_VECTORIZE
void gelu(GeluForm form, const GeluForward<float>& of) {
  forward(form, of);
}

ACCORDION_VECTORIZE
void gelu(GeluForm form, const GeluForward<Bf16>& of) {
  forward(form, of);
}

ACCORDION_VECTORIZE
void gelu(GeluForm form, const GeluForward<Fp16>& of) {
  forward(form, of);
}

ACCORDION_VECTORIZE
void gelu_backward(GeluForm form, const GeluBackward<float>& of) {
  backward(form, of);
}

ACCORDION_VECTORIZE
void gelu_backward(GeluForm form, const GeluBackward<Bf16>& of) {
  backward(form, of);
}

ACCORDION_VECTORIZE
void gelu_backward(GeluForm form, const GeluBackward<Fp16>& of) {
  backward(form, of);
}

}  // namespace accordion::kernels
