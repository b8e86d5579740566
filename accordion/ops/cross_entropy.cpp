// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/cross_entropy.h"

#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
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

/// What the gradient is multiplied by when it is stored.
///
/// // [Note: gradient of the loss in fp16]
/// The loss's own gradient, 1 or the loss scale, is known in backward only. In
/// fp16, p / divisor would be lost before it could be scaled up: 2^-24 is the
/// smallest half. So p * 2^15 is stored, which fits as p is at most 1, and
/// divided in backward by what it is too large.
double stored_scale(at::ScalarType dtype, double divisor) {
  constexpr double kLargestPower = 32768;
  return dtype == at::kHalf ? kLargestPower : 1.0 / divisor;
}

/// Losses of all rows; `gradient`, if defined, receives the gradient.
template <class T>
std::vector<kernels::RowLoss> row_losses(const at::Tensor& logits,
                                         const at::Tensor& targets,
                                         const at::Tensor& gradient,
                                         float scale) {
  const int64_t rows = logits.size(0);
  const int64_t classes = logits.size(1);
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const T* source = read<T>(logits);
  T* into = gradient.defined() ? write<T>(gradient) : nullptr;
  std::vector<kernels::RowLoss> losses(rows);
  at::parallel_for(
      0, rows, detail::rows_per_task(classes), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          T* into_row = into == nullptr ? nullptr : into + row * classes;
          if (target[row] != kIgnoredTarget) {
            losses[row] = kernels::cross_entropy(
                source + row * classes, target[row], into_row, scale, classes);
          } else if (into_row != nullptr) {
            std::fill_n(into_row, classes, T{});
          }
        }
      });
  return losses;
}

/// Loss and count; sums run over rows in order, in double, so that the result
/// does not depend on the number of threads.
CrossEntropy compute(const at::Tensor& logits, const at::Tensor& targets,
                     const at::Tensor& gradient, double divisor) {
  std::vector<kernels::RowLoss> losses;
  detail::dispatch_element(logits, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const double scale = stored_scale(logits.scalar_type(), divisor);
    losses =
        row_losses<T>(logits, targets, gradient, static_cast<float>(scale));
  });
  double sum = 0;
  int64_t correct = 0;
  for (const kernels::RowLoss& row : losses) {
    sum += row.loss;
    correct += row.correct ? 1 : 0;
  }
  return {at::scalar_tensor(sum / divisor, logits.options().dtype(at::kFloat)),
          at::scalar_tensor(correct, logits.options().dtype(at::kLong))};
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               const at::Tensor& targets, double divisor,
                               bool in_place) {
    const at::Tensor source = logits.contiguous();
    const bool overwrite = in_place && source.is_same(logits);
    const at::Tensor gradient =
        overwrite ? source.detach() : at::empty_like(source);
    if (overwrite) {
      // Whoever kept the logits for backward must notice.
      source.unsafeGetTensorImpl()->bump_version();
    }
    const CrossEntropy result = compute(source, targets, gradient, divisor);
    ctx->save_for_backward({gradient});
    ctx->saved_data["factor"] =
        detail::gradient_factor(source.scalar_type(), divisor);
    ctx->mark_non_differentiable({result.correct});
    return {result.loss, result.correct};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor gradient = ctx->get_saved_variables()[0];
    const at::Tensor factor =
        gradients[0] * ctx->saved_data["factor"].toDouble();
    // Not scaled in place: a second backward would scale it again.
    // On meta the factor is taken to be what it is without a loss scale.
    const bool as_it_is = factor.is_meta() || (factor.device().is_cpu() &&
                                               factor.item<double>() == 1.0);
    return {as_it_is ? gradient : gradient.mul(factor), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

void check_loss(at::IntArrayRef logits, const at::Tensor& targets,
                double divisor) {
  TORCH_CHECK_VALUE(
      logits.size() == 2 && targets.dim() == 1 &&
          targets.size(0) == logits[0] && targets.scalar_type() == at::kLong,
      "[cross_entropy] logits have shape ", logits, " and targets ",
      targets.sizes(), " (", targets.scalar_type(),
      "): they must be [rows, classes] and [rows] of int64.");
  TORCH_CHECK_VALUE(divisor > 0, "[cross_entropy] divisor is ", divisor,
                    ": it must be the number of targets, above 0.");
}

void check_targets(const at::Tensor& targets, int64_t classes) {
  const int64_t* target = targets.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < targets.size(0); ++row) {
    TORCH_CHECK_VALUE((target[row] >= 0 && target[row] < classes) ||
                          target[row] == kIgnoredTarget,
                      "[cross_entropy] the target of row ", row, " is ",
                      target[row], ", which is no class: classes are 0 to ",
                      classes - 1, ", and ", kIgnoredTarget, " is ignored.");
  }
}

CrossEntropy run(const at::Tensor& logits, const at::Tensor& targets,
                 double divisor, bool in_place) {
  check_loss(logits.sizes(), targets, divisor);
  if (!detail::has_kernel({logits}) || targets.device() != logits.device()) {
    return composite::cross_entropy(logits, targets, divisor);
  }
  const at::Tensor indices = targets.contiguous();
  if (indices.is_cpu()) {
    check_targets(indices, logits.size(1));
  }
  if (!logits.requires_grad() || !at::GradMode::is_enabled()) {
    return compute(logits.contiguous(), indices, {}, divisor);
  }
  variable_list result =
      CrossEntropyFunction::apply(logits, indices, divisor, in_place);
  return {std::move(result[0]), std::move(result[1])};
}

}  // namespace

CrossEntropy detail::cross_entropy_with_gradient_(const at::Tensor& logits,
                                                  const at::Tensor& targets,
                                                  double divisor) {
  return compute(logits, targets, logits, divisor);
}

double detail::gradient_factor(at::ScalarType dtype, double divisor) {
  return 1.0 / divisor / stored_scale(dtype, divisor);
}

void detail::check_cross_entropy(int64_t rows, int64_t classes,
                                 const at::Tensor& targets, double divisor) {
  check_loss({rows, classes}, targets, divisor);
  if (targets.device().is_cpu()) {
    check_targets(targets.contiguous(), classes);
  }
}

CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                           double divisor) {
  return run(logits, targets, divisor, /*in_place=*/false);
}

CrossEntropy cross_entropy_(const at::Tensor& logits, const at::Tensor& targets,
                            double divisor) {
  return run(logits, targets, divisor, /*in_place=*/true);
}

}  // namespace accordion::ops
