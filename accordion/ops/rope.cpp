// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/rope.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::ops {
namespace {

using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rotates forward (direction 1) or back (-1).
at::Tensor rotated(const at::Tensor& input, const at::Tensor& cos,
                   const at::Tensor& sin, float direction) {
  const at::Tensor x = input.contiguous();
  at::Tensor y = at::empty_like(x);
  const int64_t seq_len = x.size(1);
  const int64_t heads = x.size(2);
  const int64_t half = x.size(3) / 2;
  const int64_t row_numel = heads * 2 * half;
  detail::dispatch_element(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, x.size(0) * seq_len, detail::rows_per_task(row_numel),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row) {
                         const int64_t position = row % seq_len;
                         kernels::rotate(read<T>(x) + row * row_numel,
                                         read<float>(cos) + position * half,
                                         read<float>(sin) + position * half,
                                         write<T>(y) + row * row_numel, heads,
                                         half, direction);
                       }
                     });
  });
  return y;
}

struct Rope : torch::autograd::Function<Rope> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& cos,
                               const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return {rotated(q, cos, sin, 1.0F), rotated(k, cos, sin, 1.0F)};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto back = [&saved](const at::Tensor& gradient) {
      return gradient.defined() ? rotated(gradient, saved[0], saved[1], -1.0F)
                                : at::Tensor();
    };
    return {back(gradients[0]), back(gradients[1]), at::Tensor(), at::Tensor()};
  }
};

void check_table(const at::Tensor& x, const RopeTable& table) {
  TORCH_CHECK_VALUE(
      x.dim() == 4 && x.size(3) % 2 == 0 && table.cos.dim() == 2 &&
          table.cos.size(0) == x.size(1) &&
          table.cos.size(1) == x.size(3) / 2 &&
          table.sin.sizes() == table.cos.sizes(),
      "[rope] x has shape ", x.sizes(), " and the table ", table.cos.sizes(),
      ": they must be [batch, seq_len, heads, head_dim] and "
      "[seq_len, head_dim / 2].");
}

}  // namespace

RopeTable make_rope_table(int64_t seq_len, int64_t head_dim, double theta,
                          at::ScalarType dtype) {
  const at::Tensor exponents =
      at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  const at::Tensor angles = at::outer(at::arange(seq_len, at::kFloat),
                                      at::pow(theta, exponents.neg()));
  const auto rounded = [dtype](const at::Tensor& values) {
    return values.to(dtype).to(at::kFloat).contiguous();
  };
  return {rounded(angles.cos()), rounded(angles.sin())};
}

std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k,
                                       const RopeTable& table) {
  check_table(q, table);
  check_table(k, table);
  if (!detail::has_kernel({q, k}) || !table.cos.is_contiguous() ||
      !table.sin.is_contiguous() || table.cos.scalar_type() != at::kFloat ||
      (q.is_cpu() && !table.cos.is_cpu())) {
    return composite::rope(q, k, table);
  }
  variable_list result = Rope::apply(q, k, table.cos, table.sin);
  return {std::move(result[0]), std::move(result[1])};
}

}  // namespace accordion::ops
