// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear_cross_entropy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/module/activation_checkpoint.h"
#include "accordion/module/grad_destination.h"
#include "accordion/ops/element.h"
#include "accordion/ops/linear.h"

namespace accordion::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// That in which gradients of chunks add up.
at::ScalarType sum_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf ? at::kFloat : dtype;
}

/// Loss and gradients of one chunk after the other.
class Chunks {
 public:
  Chunks(const at::Tensor& hidden, const at::Tensor& weight, double divisor)
      : hidden_(hidden), weight_(weight), divisor_(divisor) {
    const auto options =
        hidden.options().dtype(sum_dtype(hidden.scalar_type()));
    if (hidden.requires_grad()) {
      dhidden_ = at::empty(hidden.sizes(), options);
    }
    if (weight.requires_grad()) {
      dweight_ = at::empty(weight.sizes(), options);
    }
  }

  void add(int64_t begin, int64_t count, const at::Tensor& targets) {
    const at::Tensor rows = hidden_.narrow(0, begin, count);
    const at::Tensor logits = linear(rows, weight_);
    const CrossEntropy result = detail::cross_entropy_with_gradient_(
        logits, targets.narrow(0, begin, count), divisor_);
    loss_ = loss_.defined() ? loss_ + result.loss : result.loss;
    correct_ = correct_.defined() ? correct_ + result.correct : result.correct;
    const at::ScalarType dtype = sum_dtype(hidden_.scalar_type());
    const at::Tensor dlogits = logits.to(dtype);
    if (dhidden_.defined()) {
      dhidden_.narrow(0, begin, count)
          .copy_(linear(dlogits, weight_.to(dtype).t()));
    }
    if (dweight_.defined()) {
      detail::multiply_transposed(dlogits, rows.to(dtype), dweight_,
                                  /*accumulate=*/begin > 0);
    }
  }

  [[nodiscard]] const at::Tensor& dhidden() const { return dhidden_; }
  [[nodiscard]] const at::Tensor& dweight() const { return dweight_; }
  [[nodiscard]] CrossEntropy result() const { return {loss_, correct_}; }

 private:
  const at::Tensor& hidden_;
  const at::Tensor& weight_;
  double divisor_;
  at::Tensor dhidden_, dweight_;  // less a factor; where they are wanted
  at::Tensor loss_, correct_;
};

/// Gradient of the weight times a factor, where a sharded module reduces it.
at::Tensor delivered(const at::Tensor& gradient, const at::Tensor& weight,
                     const at::Tensor& factor) {
  at::Tensor destination = grad_destination(weight);
  if (destination.defined() &&
      destination.scalar_type() == gradient.scalar_type()) {
    return at::mul_out(destination, gradient, factor);
  }
  return gradient.mul(factor).to(weight.scalar_type());
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden,
                               const at::Tensor& weight,
                               const at::Tensor& targets, double divisor,
                               int64_t rows) {
    Chunks chunks(hidden, weight, divisor);
    for (int64_t begin = 0; begin < hidden.size(0); begin += rows) {
      chunks.add(begin, std::min(rows, hidden.size(0) - begin), targets);
    }
    // The weight is asked for its destination.
    ctx->save_for_backward({weight, chunks.dhidden(), chunks.dweight()});
    ctx->saved_data["factor"] =
        detail::gradient_factor(hidden.scalar_type(), divisor);
    ctx->saved_data["dtype"] = hidden.scalar_type();
    const CrossEntropy result = chunks.result();
    ctx->mark_non_differentiable({result.correct});
    return {result.loss, result.correct};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor factor =
        gradients[0] * ctx->saved_data["factor"].toDouble();
    at::Tensor dhidden, dweight;
    if (saved[1].defined()) {
      dhidden =
          saved[1].mul(factor).to(ctx->saved_data["dtype"].toScalarType());
    }
    if (saved[2].defined()) {
      dweight = delivered(saved[2], saved[0], factor);
    }
    return {dhidden, dweight, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Each chunk on its own, its forward called again in backward.
CrossEntropy composite_in_chunks(const at::Tensor& hidden,
                                 const at::Tensor& weight,
                                 const at::Tensor& targets, double divisor,
                                 int64_t rows) {
  const auto chunk = [weight, divisor](const at::Tensor& part,
                                       const at::Tensor& part_targets) {
    const CrossEntropy result =
        cross_entropy_(linear(part, weight), part_targets, divisor);
    return std::pair(result.loss, result.correct);
  };
  const std::vector<at::Tensor> parts = hidden.split(rows);
  const std::vector<at::Tensor> part_targets = targets.split(rows);
  std::pair<at::Tensor, at::Tensor> sum =
      checkpoint(chunk, parts[0], part_targets[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [loss, correct] = checkpoint(chunk, parts[i], part_targets[i]);
    sum = {sum.first + loss, sum.second + correct};
  }
  return {sum.first, sum.second};
}

}  // namespace

CrossEntropy linear_cross_entropy(const at::Tensor& hidden,
                                  const at::Tensor& weight,
                                  const at::Tensor& targets, double divisor,
                                  int64_t rows) {
  TORCH_CHECK_VALUE(rows > 0, "[linear_cross_entropy] rows is ", rows,
                    ": so many are computed at a time, 1 or more.");
  TORCH_CHECK_VALUE(
      hidden.dim() == 2 && weight.dim() == 2 &&
          hidden.size(1) == weight.size(1) && hidden.size(0) > 0,
      "[linear_cross_entropy] hidden has shape ", hidden.sizes(),
      " and weight ", weight.sizes(),
      ": they must be [n, width], n above 0, and [classes, width].");
  detail::check_cross_entropy(hidden.size(0), weight.size(0), targets, divisor);
  if (!hidden.requires_grad() && !weight.requires_grad()) {
    const at::NoGradGuard no_grad;  // else a second call might find some
    return composite_in_chunks(hidden, weight, targets, divisor, rows);
  }
  if (!at::GradMode::is_enabled() || !detail::has_kernel({hidden, weight}) ||
      targets.device() != hidden.device()) {
    return composite_in_chunks(hidden, weight, targets, divisor, rows);
  }
  variable_list result = LinearCrossEntropy::apply(
      hidden, weight, targets.contiguous(), divisor, rows);
  return {std::move(result[0]), std::move(result[1])};
}

}  // namespace accordion::ops
