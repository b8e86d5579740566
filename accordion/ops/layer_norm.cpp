// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/layer_norm.h"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/kernels/layer_norm.h"
#include "accordion/ops/row_tasks.h"

namespace accordion::ops {
namespace {

using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Null where undefined.
template <class T>
const T* read_from(const at::Tensor& tensor, int64_t first) {
  return tensor.defined() ? read<T>(tensor) + first : nullptr;
}

/// What a call computes from, contiguous; branch and bias may be undefined.
struct Inputs {
  at::Tensor stream;
  at::Tensor branch;
  at::Tensor weight;
  at::Tensor bias;
  float eps;
};

/// The norm of stream + branch, written to `sum`; or of stream, where `branch`
/// is undefined.
at::Tensor layer_norm_forward(const Inputs& in, const at::Tensor& sum) {
  const int64_t width = in.stream.size(-1);
  const int64_t rows = in.stream.numel() / std::max<int64_t>(1, width);
  at::Tensor y = at::empty_like(in.stream);
  detail::dispatch_element(in.stream, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(
        0, rows, detail::rows_per_task(width), [&](int64_t begin, int64_t end) {
          const int64_t first = begin * width;
          kernels::layer_norm(kernels::LayerNormForward<T>{
              .x = read<T>(in.stream) + first,
              .branch = read_from<T>(in.branch, first),
              .weight = read<T>(in.weight),
              .bias = read_from<T>(in.bias, 0),
              .sum = in.branch.defined() ? write<T>(sum) + first : nullptr,
              .y = write<T>(y) + first,
              .rows = end - begin,
              .width = width,
              .eps = in.eps});
        });
  });
  return y;
}

struct Gradients {
  at::Tensor x;
  at::Tensor weight;  ///< fp32
  at::Tensor bias;    ///< fp32; undefined where there is none
};

/// `elsewhere`, where defined, is another gradient of x, to be added. Each task
/// sums its own rows of the parameters'; the tasks are added in order, so that
/// a given number of threads gives the same bits each time.
Gradients layer_norm_backward(const at::Tensor& x, const at::Tensor& weight,
                              bool has_bias, const at::Tensor& dy,
                              const at::Tensor& elsewhere, float eps) {
  const int64_t width = x.size(-1);
  const int64_t rows = x.numel() / std::max<int64_t>(1, width);
  const detail::RowTasks tasks(rows, width);
  at::Tensor dx = at::empty_like(x);
  at::Tensor sums = at::zeros({has_bias ? 2 : 1, tasks.count(), width},
                              x.options().dtype(at::kFloat));
  detail::dispatch_element(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    tasks.run([&](int64_t task, int64_t first, int64_t count) {
      const int64_t offset = first * width;
      float* dweight = write<float>(sums) + task * width;
      kernels::layer_norm_backward(kernels::LayerNormBackward<T>{
          .x = read<T>(x) + offset,
          .weight = read<T>(weight),
          .dy = read<T>(dy) + offset,
          .elsewhere = read_from<T>(elsewhere, offset),
          .dx = write<T>(dx) + offset,
          .dweight = dweight,
          .dbias = has_bias ? dweight + tasks.count() * width : nullptr,
          .rows = count,
          .width = width,
          .eps = eps});
    });
  });
  const at::Tensor totals = sums.sum(1);
  return {dx, totals[0], has_bias ? totals[1] : at::Tensor()};
}

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  // Without a branch the sum is the stream itself: an output all the same, so
  // that its gradient comes by here.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& stream,
                               const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias,
                               double eps) {
    const Inputs in{.stream = stream.contiguous(),
                    .branch = branch ? branch->contiguous() : at::Tensor(),
                    .weight = weight,
                    .bias = bias.value_or(at::Tensor()),
                    .eps = static_cast<float>(eps)};
    const at::Tensor sum = branch ? at::empty_like(in.stream) : in.stream;
    at::Tensor y = layer_norm_forward(in, sum);
    ctx->save_for_backward({sum, weight});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["has_branch"] = branch.has_value();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->set_materialize_grads(false);
    return {branch ? sum : stream, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const bool has_branch = ctx->saved_data["has_branch"].toBool();
    Gradients result{.x = gradients[0], .weight = {}, .bias = {}};
    if (gradients[1].defined()) {
      result = layer_norm_backward(
          saved[0], saved[1], ctx->saved_data["has_bias"].toBool(),
          gradients[1].contiguous(),
          result.x.defined() ? result.x.contiguous() : result.x,
          static_cast<float>(ctx->saved_data["eps"].toDouble()));
    }
    const auto rounded = [&saved](const at::Tensor& gradient) {
      return gradient.defined() ? gradient.to(saved[1].scalar_type())
                                : at::Tensor();
    };
    return {result.x, has_branch ? result.x : at::Tensor(),
            rounded(result.weight), rounded(result.bias), at::Tensor()};
  }
};

void check_parameter(const char* name, const at::Tensor& parameter,
                     const at::Tensor& x) {
  TORCH_CHECK_VALUE(
      x.dim() > 0 && parameter.dim() == 1 && parameter.size(0) == x.size(-1),
      "[layer_norm] ", name, " has shape ", parameter.sizes(), " but x ",
      x.sizes(), ": ", name, " must have as many elements as the last dim of ",
      "x.");
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps) {
  return add_layer_norm(x, {}, weight, bias, eps).normed.value();
}

NormedSum add_layer_norm(const at::Tensor& stream, const at::Tensor& branch,
                         const at::Tensor& weight, const at::Tensor& bias,
                         double eps) {
  check_parameter("weight", weight, stream);
  if (bias.defined()) {
    check_parameter("bias", bias, stream);
  }
  TORCH_CHECK_VALUE(!branch.defined() || branch.sizes() == stream.sizes(),
                    "[add_layer_norm] stream has shape ", stream.sizes(),
                    " but branch ", branch.sizes(), ": they must be alike.");
  const bool has_kernel =
      detail::has_kernel({stream, weight, branch.defined() ? branch : stream,
                          bias.defined() ? bias : stream}) &&
      weight.is_contiguous() && (!bias.defined() || bias.is_contiguous());
  if (!has_kernel) {
    const at::Tensor sum = branch.defined() ? stream + branch : stream;
    return {sum, composite::layer_norm(sum, weight, bias, eps)};
  }
  const variable_list results =
      AddLayerNorm::apply(stream, detail::if_defined(branch), weight,
                          detail::if_defined(bias), eps);
  return {results[0], results[1]};
}

NormedSum recomputed_add_layer_norm(const at::Tensor& stream,
                                    const at::Tensor& branch,
                                    const at::Tensor& weight,
                                    const at::Tensor& bias, double eps) {
  const NormedSum result = add_layer_norm(stream, branch, weight, bias, eps);
  std::vector<at::Tensor> from = {result.sum, weight};
  if (bias.defined()) {
    from.push_back(bias);
  }
  return {result.sum,
          {result.normed.value(), std::move(from),
           c10::make_intrusive<Recomputation>(
               [eps](const std::vector<at::Tensor>& kept) {
                 return std::vector{
                     layer_norm(kept[0], kept[1],
                                kept.size() > 2 ? kept[2] : at::Tensor(), eps)};
               })}};
}

}  // namespace accordion::ops
