// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear.h"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/module/grad_destination.h"
#include "accordion/ops/element.h"
#include "accordion/ops/kernels/matrix_layout.h"

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

/// rows [n, k] times the transpose of weight [m, k], plus bias [m] if any;
/// rows and weight may be transposes.
at::Tensor onednn_product(const at::Tensor& rows, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  static const c10::OperatorHandle onednn = onednn_operator().value();
  torch::jit::Stack stack{
      rows,
      weight,
      bias,
      std::string("none"),
      c10::List<std::optional<at::Scalar>>(),
      std::string(),
  };
  onednn.callBoxed(&stack);
  return std::move(stack.front()).toTensor();
}

at::Tensor product(const at::Tensor& rows, const at::Tensor& weight,
                   const std::optional<at::Tensor>& bias, bool onednn) {
  if (rows.scalar_type() == at::kHalf) {
    const auto wide_bias =
        bias ? std::optional(bias->to(at::kFloat)) : std::nullopt;
    return product(rows.to(at::kFloat), weight.to(at::kFloat), wide_bias,
                   onednn)
        .to(at::kHalf);
  }
  if (onednn) {
    return onednn_product(rows, weight, bias);
  }
  return bias ? at::addmm(*bias, rows, weight.t()) : rows.mm(weight.t());
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// The transpose of dy [n, out], as the left operand of a product: a view, or
/// a copy that lies row by row ([Note: matmuls by tiles]).
at::Tensor left_transpose(const at::Tensor& dy) {
  static const bool tiles = at::cpu::init_amx();
  if (!tiles || dy.scalar_type() != at::kBFloat16 || !dy.is_contiguous()) {
    return dy.t();
  }
  const int64_t rows = dy.size(0);
  at::Tensor copy = at::empty({dy.size(1), rows}, dy.options());
  at::parallel_for(0, dy.size(1), detail::rows_per_task(rows),
                   [&](int64_t begin, int64_t end) {
                     kernels::transpose(
                         {detail::read<kernels::Bf16>(dy) + begin, rows,
                          end - begin, dy.size(1)},
                         detail::write<kernels::Bf16>(copy) + begin * rows,
                         rows);
                   });
  return copy;
}

/// dy [n, out] transposed times x [n, in], where the weight's gradient is
/// wanted.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight) {
  at::Tensor gradient = grad_destination(weight);
  if (dy.scalar_type() == at::kHalf) {
    const at::Tensor wide = dy.to(at::kFloat).t().mm(x.to(at::kFloat));
    return gradient.defined() ? gradient.copy_(wide) : wide.to(at::kHalf);
  }
  const at::Tensor left = left_transpose(dy);
  return gradient.defined() ? at::mm_out(gradient, left, x) : left.mm(x);
}

struct Linear : torch::autograd::Function<Linear> {
  // An absent bias is no input: autograd asks each one for its device.
  // `operand` says how x is had again; autograd looks at tensors alone.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const Operand& operand, bool onednn) {
    save_operand(ctx, operand, weight);
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["onednn"] = onednn;
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return product(as_rows(x), weight, bias, onednn).view(shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[0];
    const at::Tensor dy = as_rows(gradients[0]);
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) {
      const bool onednn = ctx->saved_data["onednn"].toBool();
      dx = product(dy, weight.t(), std::nullopt, onednn)
               .view(ctx->saved_data["shape"].toIntVector());
    }
    if (ctx->needs_input_grad(1)) {
      dweight = weight_gradient(dy, as_rows(operand_of(ctx, saved)), weight);
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) {
      dbias = dy.sum(0);
    }
    return {dx, dweight, dbias, at::Tensor(), at::Tensor()};
  }

 private:
  /// Keeps the weight, and what the operand consists of where the gradient of
  /// the weight will be wanted.
  static void save_operand(AutogradContext* ctx, const Operand& operand,
                           const at::Tensor& weight) {
    variable_list saved = {weight};
    ctx->saved_data["shape"] = operand.value().sizes().vec();
    if (weight.requires_grad() && operand.is_kept()) {
      saved.push_back(operand.value());
    } else if (weight.requires_grad()) {
      saved.insert(saved.end(), operand.from().begin(), operand.from().end());
      operand.recomputation()->add_user();
      ctx->saved_data["recomputation"] =
          c10::IValue::make_capsule(operand.recomputation());
    }
    ctx->save_for_backward(saved);
  }

  static at::Tensor operand_of(AutogradContext* ctx,
                               const variable_list& saved) {
    const auto recomputation = ctx->saved_data.find("recomputation");
    if (recomputation == ctx->saved_data.end()) {
      return saved[1];
    }
    const auto capsule = recomputation->second.toCapsule();
    return static_cast<Recomputation&>(*capsule)
        .results({saved.begin() + 1, saved.end()})[0]
        .view(ctx->saved_data["shape"].toIntVector());
  }
};

/// Whether the operands are what both libraries compute; at::linear knows the
/// others, or says what is wrong with them.
bool is_plain(const at::Tensor& x, const at::Tensor& weight,
              const at::Tensor& bias) {
  const bool products = detail::has_kernel({x, weight}) && x.dim() > 1 &&
                        x.numel() > 0 && weight.dim() == 2 &&
                        weight.numel() > 0 && x.size(-1) == weight.size(1);
  return products && (!bias.defined() ||
                      (detail::has_kernel({x, bias}) && bias.dim() == 1 &&
                       bias.size(0) == weight.size(0)));
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
  return Linear::apply(x, weight, if_defined(bias), Operand(x),
                       /*onednn=*/true);
}

at::Tensor linear(const Operand& operand, const at::Tensor& weight,
                  const at::Tensor& bias) {
  const at::Tensor& x = operand.value();
  if (is_plain(x, weight, bias)) {
    const bool in_fp32 = x.scalar_type() != at::kBFloat16;
    return Linear::apply(x, weight, if_defined(bias), operand,
                         in_fp32 && linear_uses_onednn());
  }
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

}  // namespace accordion::ops
