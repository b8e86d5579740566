// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

namespace accordion::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// LibTorch's operator for a product by oneDNN. It has no C++ declaration, and
/// a LibTorch built without oneDNN does not have it.
std::optional<c10::OperatorHandle> onednn_operator() {
  return c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
}

/// rows [n, k] times the transpose of weight [m, k]; either may be a transpose.
at::Tensor product(const at::Tensor& rows, const at::Tensor& weight) {
  static const c10::OperatorHandle onednn = onednn_operator().value();
  torch::jit::Stack stack{
      rows,
      weight,
      c10::IValue(),  // no bias
      std::string("none"),
      c10::List<std::optional<at::Scalar>>(),
      std::string(),
  };
  onednn.callBoxed(&stack);
  return std::move(stack.front()).toTensor();
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return product(as_rows(x), weight).view(shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dy = as_rows(gradients[0]);
    at::Tensor dx, dweight;
    if (ctx->needs_input_grad(0)) {
      dx = product(dy, saved[1].t()).view(saved[0].sizes());
    }
    if (ctx->needs_input_grad(1)) {
      dweight = dy.t().mm(as_rows(saved[0]));
    }
    return {dx, dweight};
  }
};

bool is_fp32_on_cpu(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.numel() > 0;
}

}  // namespace

bool linear_uses_onednn() {
#if defined(__x86_64__)
  static const bool chosen = __builtin_cpu_supports("avx512f") &&
                             !__builtin_cpu_is("intel") &&
                             onednn_operator().has_value();
  return chosen;
#else
  return false;
#endif
}

at::Tensor detail::onednn_linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) {
  const at::Tensor y = Linear::apply(x, weight);
  return bias.defined() ? y + bias : y;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias) {
  if (linear_uses_onednn() && x.dim() > 1 && is_fp32_on_cpu(x) &&
      is_fp32_on_cpu(weight)) {
    return detail::onednn_linear(x, weight, bias);
  }
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

}  // namespace accordion::ops
