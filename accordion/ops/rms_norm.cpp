// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/rms_norm.h"

#include <optional>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/kernels/row_kernels.h"
#include "accordion/ops/row_tasks.h"

namespace accordion::ops {
namespace {

using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Gradients of x and, in fp32, of the weight. `elsewhere`, where defined, is
/// another gradient of x, to be added. Each task sums its own rows of the
/// weight's; the tasks are added in order, so that a given number of threads
/// gives the same bits each time.
std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& x,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& dy,
                                                    const at::Tensor& elsewhere,
                                                    float eps) {
  const int64_t width = x.size(-1);
  const int64_t rows = x.numel() / std::max<int64_t>(1, width);
  const detail::RowTasks tasks(rows, width);
  at::Tensor dx = at::empty_like(x);
  at::Tensor dweight =
      at::zeros({tasks.count(), width}, x.options().dtype(at::kFloat));
  detail::dispatch_element(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tasks.run([&](int64_t task, int64_t first, int64_t count) {
      kernels::rms_norm_backward(
          read<T>(x) + first * width, read<T>(weight),
          read<T>(dy) + first * width,
          elsewhere.defined() ? read<T>(elsewhere) + first * width : nullptr,
          write<T>(dx) + first * width, write<float>(dweight) + task * width,
          count, width, eps);
    });
  });
  return {dx, tasks.count() == 1 ? dweight[0] : dweight.sum(0)};
}

/// The norm of stream + branch, written to `sum`; or of stream, where `branch`
/// is undefined.
at::Tensor rms_norm_forward(const at::Tensor& stream, const at::Tensor& branch,
                            const at::Tensor& weight, const at::Tensor& sum,
                            float eps) {
  const int64_t width = stream.size(-1);
  const int64_t rows = stream.numel() / std::max<int64_t>(1, width);
  at::Tensor y = at::empty_like(stream);
  detail::dispatch_element(stream, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(
        0, rows, detail::rows_per_task(width), [&](int64_t begin, int64_t end) {
          const int64_t first = begin * width;
          const int64_t count = end - begin;
          if (branch.defined()) {
            kernels::add_rms_norm(read<T>(stream) + first,
                                  read<T>(branch) + first, read<T>(weight),
                                  write<T>(sum) + first, write<T>(y) + first,
                                  count, width, eps);
          } else {
            kernels::rms_norm(read<T>(stream) + first, read<T>(weight),
                              write<T>(y) + first, count, width, eps);
          }
        });
  });
  return y;
}

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  // Without a branch the sum is the stream itself: an output all the same, so
  // that its gradient comes by here.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& stream,
                               const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight, double eps) {
    const at::Tensor x = stream.contiguous();
    const at::Tensor other = branch ? branch->contiguous() : at::Tensor();
    const at::Tensor sum = branch ? at::empty_like(x) : x;
    at::Tensor y =
        rms_norm_forward(x, other, weight, sum, static_cast<float>(eps));
    ctx->save_for_backward({sum, weight});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["has_branch"] = branch.has_value();
    ctx->set_materialize_grads(false);
    return {branch ? sum : stream, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const bool has_branch = ctx->saved_data["has_branch"].toBool();
    at::Tensor dsum = gradients[0];
    at::Tensor dweight;
    if (gradients[1].defined()) {
      std::tie(dsum, dweight) = rms_norm_backward(
          saved[0], saved[1], gradients[1].contiguous(),
          dsum.defined() ? dsum.contiguous() : dsum,
          static_cast<float>(ctx->saved_data["eps"].toDouble()));
      dweight = dweight.to(saved[1].scalar_type());
    }
    return {dsum, has_branch ? dsum : at::Tensor(), dweight, at::Tensor()};
  }
};

void check_weight(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK_VALUE(
      x.dim() > 0 && weight.dim() == 1 && weight.size(0) == x.size(-1),
      "[rms_norm] weight has shape ", weight.sizes(), " but x ", x.sizes(),
      ": weight must have as many elements as the last dim of x.");
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return add_rms_norm(x, {}, weight, eps).normed.value();
}

NormedSum add_rms_norm(const at::Tensor& stream, const at::Tensor& branch,
                       const at::Tensor& weight, double eps) {
  check_weight(stream, weight);
  TORCH_CHECK_VALUE(!branch.defined() || branch.sizes() == stream.sizes(),
                    "[add_rms_norm] stream has shape ", stream.sizes(),
                    " but branch ", branch.sizes(), ": they must be alike.");
  const bool has_kernel =
      detail::has_kernel({stream, weight, branch.defined() ? branch : stream});
  if (!has_kernel || !weight.is_contiguous()) {
    const at::Tensor sum = branch.defined() ? stream + branch : stream;
    return {sum, composite::rms_norm(sum, weight, eps)};
  }
  const variable_list results = AddRmsNorm::apply(
      stream, branch.defined() ? std::optional(branch) : std::nullopt, weight,
      eps);
  return {results[0], results[1]};
}

NormedSum recomputed_add_rms_norm(const at::Tensor& stream,
                                  const at::Tensor& branch,
                                  const at::Tensor& weight, double eps) {
  const NormedSum result = add_rms_norm(stream, branch, weight, eps);
  return {result.sum,
          {result.normed.value(),
           {result.sum, weight},
           c10::make_intrusive<Recomputation>(
               [eps](const std::vector<at::Tensor>& from) {
                 return std::vector{rms_norm(from[0], from[1], eps)};
               })}};
}

}  // namespace accordion::ops
