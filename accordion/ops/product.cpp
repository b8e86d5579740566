// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/product.h"

#include <cmath>
#include <vector>

#include <ATen/native/CPUBlas.h>
#include <c10/util/Exception.h>

#include "accordion/ops/kernels/matrix_layout.h"

namespace accordion::ops::detail {
namespace {

using kernels::Bf16;

/// Multiplies small integers, whose products are exact, in a shape with every
/// kind of remainder.
bool multiplies_pairs_correctly() {
  constexpr int64_t kM = 19;
  constexpr int64_t kN = 37;
  constexpr int64_t kK = 50;
  constexpr int64_t kStride = 70;
  std::vector<Bf16> a(kM * kK);
  std::vector<Bf16> b(kK * kN);
  std::vector<Bf16> packed(kK * kN);
  std::vector<float> c(kM * kStride);
  for (int64_t i = 0; i < kM * kK; ++i) {
    kernels::store(a[i], static_cast<float>(i % 7 - 3));
  }
  for (int64_t i = 0; i < kK * kN; ++i) {
    kernels::store(b[i], static_cast<float>(i % 5 - 2));
  }
  kernels::pack({b.data(), kK, kN, kN}, packed.data());
  multiply({kM, kN, kK, kK, kN, kStride}, a.data(), packed.data(), c.data(),
           /*accumulate=*/false);
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      float expected = 0;
      for (int64_t k = 0; k < kK; ++k) {
        expected += to_float(a[i * kK + k]) * to_float(b[k * kN + j]);
      }
      if (c[i * kStride + j] != expected) {
        return false;
      }
    }
  }
  return true;
}

bool probe_bf16() {
  try {
    return multiplies_pairs_correctly();
  } catch (const c10::Error&) {
    return false;  // LibTorch's only way to say that it cannot
  }
}

}  // namespace

void multiply(const ProductShape& shape, const float* a, const float* b,
              float* c, bool accumulate) {
  at::native::cpublas::brgemm(shape.m, shape.n, shape.k, shape.a_stride,
                              shape.b_stride, shape.c_stride, accumulate, a, b,
                              c, /*is_vnni=*/false);
}

void multiply(const ProductShape& shape, const Bf16* a, const Bf16* b, float* c,
              bool accumulate) {
  at::native::cpublas::brgemm(shape.m, shape.n, shape.k, shape.a_stride,
                              shape.b_stride, shape.c_stride, accumulate,
                              reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c,
                              /*is_vnni=*/true);
}

bool can_multiply(at::ScalarType dtype) {
  if (dtype == at::kFloat) {
    return true;
  }
  static const bool bf16 = probe_bf16();
  return dtype == at::kBFloat16 && bf16;
}

}  // namespace accordion::ops::detail
