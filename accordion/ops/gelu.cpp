// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/gelu.h"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/row_tasks.h"

namespace accordion::ops {
namespace {

using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor gelu_forward(const at::Tensor& x, const at::Tensor& bias,
                        GeluForm form) {
  // Without a bias an element is a row.
  const int64_t width = bias.defined() ? x.size(-1) : 1;
  const int64_t rows = x.numel() / std::max<int64_t>(1, width);
  at::Tensor y = at::empty_like(x);
  detail::dispatch_element(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(
        0, rows, detail::rows_per_task(width), [&](int64_t begin, int64_t end) {
          const int64_t count = end - begin;
          kernels::gelu(form,
                        kernels::GeluForward<T>{
                            .x = read<T>(x) + begin * width,
                            .bias = bias.defined() ? read<T>(bias) : nullptr,
                            .y = write<T>(y) + begin * width,
                            .rows = bias.defined() ? count : 1,
                            .width = bias.defined() ? width : count});
        });
  });
  return y;
}

/// Gradients of x and, in fp32 where there is one, of the bias. Each task sums
/// its own rows of the bias's; the tasks are added in order, so that a given
/// number of threads gives the same bits each time.
std::pair<at::Tensor, at::Tensor> gelu_backward(const at::Tensor& x,
                                                const at::Tensor& bias,
                                                const at::Tensor& dy,
                                                GeluForm form) {
  const int64_t width = bias.defined() ? x.size(-1) : 1;
  const int64_t rows = x.numel() / std::max<int64_t>(1, width);
  const detail::RowTasks tasks(rows, width);
  at::Tensor dx = at::empty_like(x);
  at::Tensor dbias = bias.defined() ? at::zeros({tasks.count(), width},
                                                x.options().dtype(at::kFloat))
                                    : at::Tensor();
  detail::dispatch_element(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tasks.run([&](int64_t task, int64_t first, int64_t count) {
      const bool has_bias = bias.defined();
      kernels::gelu_backward(
          form,
          kernels::GeluBackward<T>{
              .x = read<T>(x) + first * width,
              .bias = has_bias ? read<T>(bias) : nullptr,
              .dy = read<T>(dy) + first * width,
              .dx = write<T>(dx) + first * width,
              .dbias = has_bias ? write<float>(dbias) + task * width : nullptr,
              .rows = has_bias ? count : 1,
              .width = has_bias ? width : count});
    });
  });
  return {dx, dbias.defined() ? dbias.sum(0) : at::Tensor()};
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input,
                            const std::optional<at::Tensor>& bias,
                            int64_t form) {
    const at::Tensor x = input.contiguous();
    variable_list saved = {x};
    if (bias) {
      saved.push_back(*bias);
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["form"] = form;
    return gelu_forward(x, bias.value_or(at::Tensor()),
                        static_cast<GeluForm>(form));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor bias = saved.size() > 1 ? saved[1] : at::Tensor();
    const auto [dx, dbias] =
        gelu_backward(saved[0], bias, gradients[0].contiguous(),
                      static_cast<GeluForm>(ctx->saved_data["form"].toInt()));
    return {dx, dbias.defined() ? dbias.to(bias.scalar_type()) : at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x, GeluForm form, const at::Tensor& bias) {
  TORCH_CHECK_VALUE(
      !bias.defined() ||
          (x.dim() > 0 && bias.dim() == 1 && bias.size(0) == x.size(-1)),
      "[gelu] bias has shape ", bias.sizes(), " but x ", x.sizes(),
      ": bias must have as many elements as the last dim of x.");
  if (!detail::has_kernel({x, bias.defined() ? bias : x}) ||
      (bias.defined() && !bias.is_contiguous())) {
    return composite::gelu(x, form, bias);
  }
  return GeluFunction::apply(
      x, bias.defined() ? std::optional(bias) : std::nullopt,
      static_cast<int64_t>(form));
}

Operand recomputed_gelu(const at::Tensor& x, GeluForm form,
                        const at::Tensor& bias) {
  std::vector<at::Tensor> from = {x};
  if (bias.defined()) {
    from.push_back(bias);
  }
  return {gelu(x, form, bias), std::move(from),
          c10::make_intrusive<Recomputation>(
              [form](const std::vector<at::Tensor>& kept) {
                return std::vector{gelu(
                    kept[0], form, kept.size() > 1 ? kept[1] : at::Tensor())};
              })};
}

}  // namespace accordion::ops
