// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
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

/// Gradients of x and, in fp32, of the weight. Each task sums its own rows of
/// the latter; the tasks are added in order, so that a given number of threads
/// gives the same bits each time.
std::pair<at::Tensor, at::Tensor> backward_of(const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const at::Tensor& dy, float eps) {
  const int64_t width = x.size(-1);
  const int64_t rows = x.numel() / std::max<int64_t>(1, width);
  const int64_t tasks = std::clamp<int64_t>(rows / detail::rows_per_task(width),
                                            1, at::get_num_threads());
  at::Tensor dx = at::empty_like(x);
  at::Tensor dweight = at::zeros({tasks, width}, x.options().dtype(at::kFloat));
  detail::dispatch_element(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = rows * task / tasks;
        const int64_t count = rows * (task + 1) / tasks - first;
        kernels::rms_norm_backward(
            read<T>(x) + first * width, read<T>(weight),
            read<T>(dy) + first * width, write<T>(dx) + first * width,
            write<float>(dweight) + task * width, count, width, eps);
      }
    });
  });
  return {dx, tasks == 1 ? dweight[0] : dweight.sum(0)};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& weight, double eps) {
    const at::Tensor x = input.contiguous();
    const int64_t width = x.size(-1);
    const int64_t rows = x.numel() / std::max<int64_t>(1, width);
    at::Tensor y = at::empty_like(x);
    detail::dispatch_element(x.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, rows, detail::rows_per_task(width),
                       [&](int64_t begin, int64_t end) {
                         kernels::rms_norm(
                             read<T>(x) + begin * width, read<T>(weight),
                             write<T>(y) + begin * width, end - begin, width,
                             static_cast<float>(eps));
                       });
    });
    ctx->save_for_backward({x, weight});
    ctx->saved_data["eps"] = eps;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    auto [dx, dweight] =
        backward_of(saved[0], saved[1], gradients[0].contiguous(),
                    static_cast<float>(ctx->saved_data["eps"].toDouble()));
    return {dx, dweight.to(saved[1].scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  TORCH_CHECK_VALUE(
      x.dim() > 0 && weight.dim() == 1 && weight.size(0) == x.size(-1),
      "[rms_norm] weight has shape ", weight.sizes(), " but x ", x.sizes(),
      ": weight must have as many elements as the last dim of x.");
  if (!detail::has_kernel({x, weight}) || !weight.is_contiguous()) {
    return composite::rms_norm(x, weight, eps);
  }
  return RmsNorm::apply(x, weight, eps);
}

Operand recomputed_rms_norm(const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
  return {rms_norm(x, weight, eps),
          {x, weight},
          c10::make_intrusive<Recomputation>(
              [eps](const std::vector<at::Tensor>& from) {
                return std::vector{rms_norm(from[0], from[1], eps)};
              })};
}

}  // namespace accordion::ops
