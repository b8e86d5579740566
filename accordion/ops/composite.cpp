// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/composite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

namespace accordion::ops::composite {
namespace {

/// The type in which softmax and sums are computed.
at::Tensor widened(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

at::Tensor rotated_halves(const at::Tensor& x, const RopeTable& table) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor cos = table.cos.unsqueeze(1).to(x.scalar_type());
  const at::Tensor sin = table.sin.unsqueeze(1).to(x.scalar_type());
  const at::Tensor a = x.narrow(-1, 0, half);
  const at::Tensor b = x.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
}

/// Causal where `mask`, of who sees whom, is undefined.
at::Tensor attended(const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, const at::Tensor& mask) {
  const bool grouped = q.size(2) != k.size(2);
  return at::scaled_dot_product_attention(
             q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
             mask.defined() ? std::optional(mask) : std::nullopt,
             /*dropout_p=*/0.0, /*is_causal=*/!mask.defined(),
             /*scale=*/std::nullopt, grouped)
      .transpose(1, 2);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return at::rms_norm(x, weight.sizes(), weight, eps);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps) {
  return at::layer_norm(x, weight.sizes(), weight,
                        bias.defined() ? std::optional(bias) : std::nullopt,
                        eps);
}

at::Tensor gelu(const at::Tensor& x, GeluForm form, const at::Tensor& bias) {
  return at::gelu(bias.defined() ? x + bias : x,
                  form == GeluForm::Exact ? "none" : "tanh");
}

std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k,
                                       const RopeTable& table) {
  return {rotated_halves(q, table), rotated_halves(k, table)};
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                           double divisor) {
  const at::Tensor sum =
      at::cross_entropy_loss(widened(logits), targets, /*weight=*/{},
                             at::Reduction::Sum, kIgnoredTarget);
  return {sum / divisor, logits.argmax(-1).eq(targets).sum()};
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, int64_t window) {
  if (window >= q.size(1)) {
    return attended(q, k, v, /*mask=*/{});
  }
  // As many queries at a time as the window has positions, or a few more,
  // against the keys that they see: a mask of all pairs would grow with the
  // square of seq_len.
  const int64_t block = std::max<int64_t>(window, 128);
  const at::Tensor positions =
      at::arange(q.size(1), q.options().dtype(at::kLong));
  std::vector<at::Tensor> results;
  for (int64_t first = 0; first < q.size(1); first += block) {
    const int64_t queries = std::min(block, q.size(1) - first);
    const int64_t first_key = std::max<int64_t>(0, first + 1 - window);
    const int64_t keys = first + queries - first_key;
    const at::Tensor distance =
        positions.narrow(0, first, queries).unsqueeze(1) -
        positions.narrow(0, first_key, keys);
    results.push_back(attended(
        q.narrow(1, first, queries), k.narrow(1, first_key, keys),
        v.narrow(1, first_key, keys), distance.ge(0) & distance.lt(window)));
  }
  return at::cat(results, 1);
}

}  // namespace accordion::ops::composite
