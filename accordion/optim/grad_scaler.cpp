// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "accordion/comm/gather_values.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/shard_gradients.h"

namespace accordion {

namespace {

/// A scale within these is a normal fp32 number, and so is its inverse.
constexpr double kSmallestScale = 0x1p-126;
constexpr double kLargestScale = 0x1p126;

bool in_range(double scale) {
  return scale >= kSmallestScale && scale <= kLargestScale;
}

void check_scaler_options(const GradScalerOptions& options) {
  TORCH_CHECK_VALUE(in_range(options.init_scale), "[GradScaler] init_scale is ",
                    options.init_scale, "; give 2^-126 to 2^126");
  TORCH_CHECK_VALUE(
      options.growth_factor > 1 && std::isfinite(options.growth_factor),
      "[GradScaler] growth_factor is ", options.growth_factor,
      "; give a number above 1");
  TORCH_CHECK_VALUE(options.backoff_factor > 0 && options.backoff_factor < 1,
                    "[GradScaler] backoff_factor is ", options.backoff_factor,
                    "; give a number between 0 and 1");
  TORCH_CHECK_VALUE(options.growth_interval >= 1,
                    "[GradScaler] growth_interval is ", options.growth_interval,
                    "; give 1 step or more");
  TORCH_CHECK_VALUE(
      in_range(options.min_scale) && options.min_scale <= options.init_scale,
      "[GradScaler] min_scale is ", options.min_scale,
      "; give 2^-126 to init_scale (", options.init_scale, ")");
  TORCH_CHECK_VALUE(options.max_skips >= 0, "[GradScaler] max_skips is ",
                    options.max_skips, "; give 0 or more");
}

/// A gradient in fp16 would vanish when it is divided by the scale.
void check_dtypes(const torch::nn::Module& root) {
  for (const FlatShard& shard : flat_shards(root)) {
    TORCH_CHECK_VALUE(
        !shard.gradients.defined() ||
            shard.gradients.scalar_type() != at::kHalf,
        "[GradScaler] parameters of unit '", shard.unit,
        "' are stored in fp16, and their gradients are lost when they are "
        "divided by the scale. Make the module in fp32, and compute in fp16 "
        "with MixedPrecision::param_dtype.");
  }
}

/// Every gradient that an optimizer may read, less empty ones.
std::vector<at::Tensor> all_gradients(const torch::nn::Module& root) {
  std::vector<at::Tensor> result;
  const auto add = [&result](const at::Tensor& gradient) {
    if (gradient.defined() && gradient.numel() > 0) {
      result.push_back(gradient);
    }
  };
  for (const FlatShard& shard : flat_shards(root)) {
    std::ranges::for_each(detail::gradients_of(shard), add);
  }
  for (const auto& [name, parameter] : ignored_parameters(root)) {
    add(parameter.grad());
  }
  return result;
}

/// Multiplies the gradients by `factor`; returns whether one was not finite.
bool multiply(const std::vector<at::Tensor>& gradients, double factor) {
  if (gradients.empty()) {
    return false;
  }
  const auto options = gradients.front().options().dtype(at::kFloat);
  at::Tensor found = at::zeros({1}, options);
  at::_amp_foreach_non_finite_check_and_unscale_(
      gradients, found, at::full({1}, factor, options));
  return found.item<float>() != 0;
}

/// Where to look, in the words of an error.
std::string describe_fault(const torch::nn::Module& root) {
  const auto unit = first_nonfinite_unit(root);
  if (!unit) {
    return "No unit holds such a gradient: look at parameters that fully_shard "
           "was told to ignore, and for squares beyond fp64.";
  }
  return "Backward first met such a gradient in " +
         (unit->empty() ? "the root." : "unit '" + *unit + "'.");
}

}  // namespace

GradScaler::GradScaler(torch::nn::Module& root, GradScalerOptions options)
    : root_(root), options_(options), state_{.scale = options.init_scale} {
  check_scaler_options(options_);
  check_dtypes(root_);
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) const {
  const bool is_narrow =
      loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (is_narrow ? loss.to(at::kFloat) : loss) * state_.scale;
}

double GradScaler::reduced_grad_norm() {
  TORCH_CHECK_VALUE(gradients_ != Gradients::Unscaled,
                    "[GradScaler] reduced_grad_norm() after unscale_(): the "
                    "reductions' sums are those of the scaled gradients. Use "
                    "clip_grad_norm_, or leave unscale_() out.");
  const double norm = accordion::reduced_grad_norm(root_);
  // Squares of fp32 numbers do not overflow in fp64.
  found_nonfinite_ = !std::isfinite(norm);
  gradients_ = Gradients::Checked;
  return norm / state_.scale;
}

void GradScaler::unscale_() {
  TORCH_CHECK_VALUE(gradients_ != Gradients::Unscaled,
                    "[GradScaler] unscale_() was called already since the last "
                    "update(): the gradients have no scale any more.");
  const at::NoGradGuard no_grad;
  const std::int32_t mine =
      multiply(all_gradients(root_), 1.0 / state_.scale) ? 1 : 0;
  const std::vector<std::int32_t> found =
      gather_values(world_communicator(root_), mine, "GradScaler::unscale_");
  found_nonfinite_ = std::ranges::find(found, 1) != found.end();
  gradients_ = Gradients::Unscaled;
}

bool GradScaler::at_limit() const {
  return state_.skips_in_row >= options_.max_skips ||
         state_.scale * options_.backoff_factor < options_.min_scale;
}

bool GradScaler::skips_step() const {
  if (found_nonfinite_ && at_limit()) {
    TORCH_CHECK(false,
                "[GradScaler] gradients are not finite at a loss scale "
                "of ",
                state_.scale, ", and the ", state_.skips_in_row,
                " steps before were skipped for that; max_skips is ",
                options_.max_skips, ", min_scale ", options_.min_scale, ". ",
                describe_fault(root_),
                " Look for a learning rate that is too high, for bad data, or "
                "for activations beyond 65504; or compute in bf16 or fp32.");
  }
  return found_nonfinite_;
}

bool GradScaler::step(AdamW& optimizer, double gradient_scale) {
  if (gradients_ == Gradients::Scaled) {
    (void)reduced_grad_norm();
  }
  if (skips_step()) {
    return false;
  }
  optimizer.step(gradients_ == Gradients::Unscaled
                     ? gradient_scale
                     : gradient_scale / state_.scale);
  return true;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (gradients_ != Gradients::Unscaled) {
    unscale_();
  }
  if (skips_step()) {
    return false;
  }
  optimizer.step();
  return true;
}

void GradScaler::update() {
  TORCH_CHECK_VALUE(gradients_ != Gradients::Scaled,
                    "[GradScaler] update() without a step() since the last "
                    "one: nobody looked whether the gradients are finite.");
  if (found_nonfinite_) {
    state_.scale =
        std::max(state_.scale * options_.backoff_factor, options_.min_scale);
    state_.finite_steps = 0;
    ++state_.skips_in_row;
    ++state_.skipped_steps;
  } else {
    state_.skips_in_row = 0;
    if (++state_.finite_steps >= options_.growth_interval) {
      state_.scale =
          std::min(state_.scale * options_.growth_factor, kLargestScale);
      state_.finite_steps = 0;
    }
  }
  gradients_ = Gradients::Scaled;
  found_nonfinite_ = false;
}

void GradScaler::set_state(const GradScalerState& state) {
  TORCH_CHECK_VALUE(in_range(state.scale) && state.finite_steps >= 0 &&
                        state.skips_in_row >= 0 && state.skipped_steps >= 0,
                    "[GradScaler] a state has scale ", state.scale,
                    ", finite_steps ", state.finite_steps, ", skips_in_row ",
                    state.skips_in_row, ", skipped_steps ", state.skipped_steps,
                    "; give a scale of 2^-126 to 2^126, and counts of 0 or "
                    "more");
  state_ = state;
}

}  // namespace accordion
