// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear.h"

#include <algorithm>
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
  if (onednn && !rows.is_meta()) {
    return onednn_product(rows, weight, bias);
  }
  return bias ? at::addmm(*bias, rows, weight.t()) : rows.mm(weight.t());
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// Whether a product whose left operand is the transpose of dy is faster from a
/// copy that lies row by row ([Note: matmuls by tiles]).
bool transposes_copies(const at::Tensor& dy) {
  static const bool tiles = at::cpu::init_amx();
  return tiles && !dy.is_cuda() && !dy.is_meta() &&
         dy.scalar_type() == at::kBFloat16 && dy.is_contiguous();
}

/// As detail::multiply_transposed, from such copies of some columns of dy at a
/// time: of logits a whole one would be as large as they are.
void multiply_copies(const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& to, bool accumulate) {
  constexpr int64_t kMostBytes = 4 << 20;  // of a copy
  const int64_t rows = dy.size(0);
  const int64_t columns = dy.size(1);
  const int64_t row_bytes = rows * static_cast<int64_t>(dy.element_size());
  const int64_t block =
      std::max<int64_t>(kMostBytes / std::max<int64_t>(row_bytes, 1), 64);
  const at::Tensor copies =
      at::empty({std::min(block, columns), rows}, dy.options());
  for (int64_t first = 0; first < columns; first += block) {
    const int64_t count = std::min(block, columns - first);
    at::parallel_for(
        0, count, detail::rows_per_task(rows), [&](int64_t begin, int64_t end) {
          kernels::transpose(
              {detail::read<kernels::Bf16>(dy) + first + begin, rows,
               end - begin, columns},
              detail::write<kernels::Bf16>(copies) + begin * rows, rows);
        });
    at::Tensor part = to.narrow(0, first, count);
    const at::Tensor left = copies.narrow(0, 0, count);
    accumulate ? at::addmm_out(part, part, left, x) : at::mm_out(part, left, x);
  }
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
  if (!gradient.defined()) {
    gradient = at::empty({dy.size(1), x.size(1)}, x.options());
  }
  detail::multiply_transposed(dy, x, gradient, /*accumulate=*/false);
  return gradient;
}

/// to += rows [n, k] times the transpose of weight [m, k].
void add_product(at::Tensor& to, const at::Tensor& rows,
                 const at::Tensor& weight, bool onednn) {
  if (onednn || rows.scalar_type() == at::kHalf) {
    to.add_(product(rows, weight, std::nullopt, onednn));
  } else {
    at::addmm_out(to, to, rows, weight.t());
  }
}

/// Products of one x with several weights, so that backward adds up the
/// gradient of x as it multiplies.
struct Linears : torch::autograd::Function<Linears> {
  // `parameters`: weights, then as many biases or none; an absent one is no
  // input, as autograd asks each for its device. `operand` says how x is had
  // again; autograd looks at tensors alone.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               at::TensorList parameters, int64_t num_weights,
                               const Operand& operand, bool onednn) {
    const at::TensorList weights = parameters.slice(0, num_weights);
    const at::TensorList biases = parameters.slice(num_weights);
    save_operand(ctx, operand, weights);
    ctx->saved_data["num_weights"] = num_weights;
    ctx->saved_data["has_bias"] = !biases.empty();
    ctx->saved_data["onednn"] = onednn;
    const at::Tensor rows = as_rows(x);
    std::vector<int64_t> shape = x.sizes().vec();
    variable_list results;
    for (int64_t i = 0; i < num_weights; ++i) {
      const auto bias =
          biases.empty() ? std::nullopt : std::optional(biases[i]);
      shape.back() = weights[i].size(0);
      results.push_back(product(rows, weights[i], bias, onednn).view(shape));
    }
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const int64_t num_weights = ctx->saved_data["num_weights"].toInt();
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    at::Tensor dx, x;
    variable_list dweights(num_weights);
    variable_list dbiases(has_bias ? num_weights : 0);
    for (int64_t i = 0; i < num_weights; ++i) {
      const at::Tensor dy = as_rows(gradients[i]);
      if (ctx->needs_input_grad(0)) {
        add_to_dx(dx, dy, saved[i], ctx->saved_data["onednn"].toBool());
      }
      if (ctx->needs_input_grad(1 + i)) {
        x = x.defined() ? x : as_rows(operand_of(ctx, saved));
        dweights[i] = weight_gradient(dy, x, saved[i]);
      }
      if (has_bias && ctx->needs_input_grad(1 + num_weights + i)) {
        dbiases[i] = dy.sum(0);
      }
    }
    variable_list results = {
        dx.defined() ? dx.view(ctx->saved_data["shape"].toIntVector()) : dx};
    results.insert(results.end(), dweights.begin(), dweights.end());
    results.insert(results.end(), dbiases.begin(), dbiases.end());
    results.resize(results.size() + 3);  // of what is no tensor
    return results;
  }

 private:
  static void add_to_dx(at::Tensor& dx, const at::Tensor& dy,
                        const at::Tensor& weight, bool onednn) {
    if (dx.defined()) {
      add_product(dx, dy, weight.t(), onednn);
    } else {
      dx = product(dy, weight.t(), std::nullopt, onednn);
    }
  }

  /// Keeps the weights, and what the operand consists of where the gradient of
  /// a weight will be wanted.
  static void save_operand(AutogradContext* ctx, const Operand& operand,
                           at::TensorList weights) {
    variable_list saved = weights.vec();
    ctx->saved_data["shape"] = operand.value().sizes().vec();
    const bool wanted =
        std::any_of(weights.begin(), weights.end(),
                    [](const at::Tensor& w) { return w.requires_grad(); });
    if (wanted && operand.is_kept()) {
      saved.push_back(operand.value());
    } else if (wanted) {
      saved.insert(saved.end(), operand.from().begin(), operand.from().end());
      operand.recomputation()->add_user();
      ctx->saved_data["recomputation"] =
          c10::IValue::make_capsule(operand.recomputation());
    }
    ctx->save_for_backward(saved);
  }

  static at::Tensor operand_of(AutogradContext* ctx,
                               const variable_list& saved) {
    const auto first = saved.begin() + ctx->saved_data["num_weights"].toInt();
    const auto recomputation = ctx->saved_data.find("recomputation");
    if (recomputation == ctx->saved_data.end()) {
      return *first;
    }
    const auto capsule = recomputation->second.toCapsule();
    return static_cast<Recomputation&>(*capsule)
        .results({first, saved.end()})[0]
        .view(ctx->saved_data["shape"].toIntVector());
  }
};

/// Plain tensors of one dtype on the CPU, or in fp32 or bf16 on a CUDA device,
/// whose products write to a destination as those of the CPU do.
bool can_multiply(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor& first = *tensors.begin();
  const auto like_first = [&first](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.layout() == at::kStrided &&
           tensor.device() == first.device() &&
           tensor.scalar_type() == first.scalar_type();
  };
  const bool on_cuda = std::all_of(tensors.begin(), tensors.end(), like_first);
  return detail::has_kernel(tensors) ||
         (on_cuda && (first.scalar_type() == at::kFloat ||
                      first.scalar_type() == at::kBFloat16));
}

/// Whether the operands are what both libraries compute; at::linear knows the
/// others, or says what is wrong with them.
bool is_plain(const at::Tensor& x, const at::Tensor& weight,
              const at::Tensor& bias) {
  const bool products = can_multiply({x, weight}) && x.dim() > 1 &&
                        x.numel() > 0 && weight.dim() == 2 &&
                        weight.numel() > 0 && x.size(-1) == weight.size(1);
  return products &&
         (!bias.defined() || (can_multiply({x, bias}) && bias.dim() == 1 &&
                              bias.size(0) == weight.size(0)));
}

}  // namespace

void detail::multiply_transposed(const at::Tensor& dy, const at::Tensor& x,
                                 at::Tensor& to, bool accumulate) {
  if (transposes_copies(dy)) {
    multiply_copies(dy, x, to, accumulate);
  } else if (accumulate) {
    at::addmm_out(to, to, dy.t(), x);
  } else {
    at::mm_out(to, dy.t(), x);
  }
}

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
  const variable_list parameters =
      bias.defined() ? variable_list{weight, bias} : variable_list{weight};
  return Linears::apply(x, at::TensorList(parameters), int64_t{1}, Operand(x),
                        /*onednn=*/true)[0];
}

std::vector<at::Tensor> linears(const Operand& operand,
                                const std::vector<LinearParameters>& layers) {
  const at::Tensor& x = operand.value();
  variable_list parameters;
  variable_list biases;
  bool plain = true;
  for (const LinearParameters& layer : layers) {
    plain = plain && is_plain(x, layer.weight, layer.bias);
    parameters.push_back(layer.weight);
    if (layer.bias.defined()) {
      biases.push_back(layer.bias);
    }
  }
  const bool all_or_none = biases.empty() || biases.size() == layers.size();
  if (plain && all_or_none) {
    parameters.insert(parameters.end(), biases.begin(), biases.end());
    return Linears::apply(x, at::TensorList(parameters),
                          static_cast<int64_t>(layers.size()), operand,
                          x.scalar_type() != at::kBFloat16 && !x.is_cuda() &&
                              linear_uses_onednn());
  }
  if (layers.size() == 1) {
    return {
        at::linear(x, layers[0].weight, detail::if_defined(layers[0].bias))};
  }
  std::vector<at::Tensor> results;
  for (const auto& [weight, bias] : layers) {
    results.push_back(linear(operand, weight, bias));
  }
  return results;
}

at::Tensor linear(const Operand& x, const at::Tensor& weight,
                  const at::Tensor& bias) {
  return linears(x, {{weight, bias}})[0];
}

}  // namespace accordion::ops
