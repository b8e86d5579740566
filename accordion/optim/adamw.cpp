// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "accordion/ops/kernels/adamw.h"

namespace accordion {

namespace {

/// Elements worth handing to a thread.
constexpr std::int64_t kElementsPerTask = 1 << 16;

void check_options(const AdamWOptions& options) {
  TORCH_CHECK_VALUE(options.lr >= 0, "[AdamW] lr is ", options.lr,
                    "; give 0 or more");
  TORCH_CHECK_VALUE(options.beta1 >= 0 && options.beta1 < 1 &&
                        options.beta2 >= 0 && options.beta2 < 1,
                    "[AdamW] betas are ", options.beta1, ", ", options.beta2,
                    "; give numbers in [0, 1)");
  TORCH_CHECK_VALUE(options.eps >= 0, "[AdamW] eps is ", options.eps,
                    "; give 0 or more");
  TORCH_CHECK_VALUE(options.weight_decay >= 0, "[AdamW] weight_decay is ",
                    options.weight_decay, "; give 0 or more");
}

bool has_gradient(const LocalParameter& piece) {
  return piece.parameter.requires_grad() && piece.parameter.grad().defined();
}

}  // namespace

AdamW::AdamW(torch::nn::Module& root, AdamWOptions options)
    : root_(root), options_(std::move(options)) {
  check_options(options_);
  const at::NoGradGuard no_grad;
  add_new_shards();
}

/// Shards with gradients that had none when last looked: all of their
/// parameters were frozen.
void AdamW::add_new_shards() {
  const std::uint64_t version = trainable_version(root_);
  if (trainable_version_ == version) {
    return;
  }
  for (const FlatShard& shard : flat_shards(root_)) {
    if (shard.gradients.defined() &&
        known_shards_.insert(shard.parameters.const_data_ptr()).second) {
      add_shard(shard);
    }
  }
  trainable_version_ = version;
}

/// Cuts the shard between neighbours that differ in decay. What lies between
/// pieces is padding: zero, and stays so.
void AdamW::add_shard(const FlatShard& shard) {
  const at::Tensor first = at::zeros_like(shard.parameters);
  const at::Tensor second = at::zeros_like(shard.parameters);
  const auto decays = [this](const LocalParameter& piece) {
    return !options_.decays || options_.decays(piece);
  };
  state_bytes_ += static_cast<std::int64_t>(first.nbytes() + second.nbytes());
  std::size_t begin = 0;
  while (begin < shard.pieces.size()) {
    const bool decay = decays(shard.pieces[begin]);
    std::size_t end = begin + 1;
    while (end < shard.pieces.size() && decays(shard.pieces[end]) == decay) {
      ++end;
    }
    const std::int64_t start = shard.offsets[begin];
    const std::int64_t stop =
        shard.offsets[end - 1] + shard.pieces[end - 1].piece.numel();
    Range range;
    range.decays = decay;
    for (std::size_t i = begin; i < end; ++i) {
      range.pieces.push_back(shard.pieces[i]);
      range.offsets.push_back(shard.offsets[i] - start);
    }
    range.parameters = shard.parameters.narrow(0, start, stop - start);
    range.gradients = shard.gradients.narrow(0, start, stop - start);
    range.first_moment = first.narrow(0, start, stop - start);
    range.second_moment = second.narrow(0, start, stop - start);
    ranges_.push_back(std::move(range));
    begin = end;
  }
}

/// One range a piece, with the state that it has.
std::vector<AdamW::Range> AdamW::split(const Range& range) {
  std::vector<Range> result;
  for (std::size_t i = 0; i < range.pieces.size(); ++i) {
    const std::int64_t numel = range.pieces[i].piece.numel();
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, range.offsets[i], numel);
    };
    result.push_back({.pieces = {range.pieces[i]},
                      .offsets = {0},
                      .decays = range.decays,
                      .parameters = part(range.parameters),
                      .gradients = part(range.gradients),
                      .first_moment = part(range.first_moment),
                      .second_moment = part(range.second_moment),
                      .steps = range.steps});
  }
  return result;
}

/// A parameter without a gradient is not updated, as in torch::optim: its
/// neighbours then need ranges of their own.
void AdamW::split_where_gradients_differ() {
  std::vector<Range> result;
  for (Range& range : ranges_) {
    const auto with =
        std::count_if(range.pieces.begin(), range.pieces.end(), has_gradient);
    if (with == 0 || with == static_cast<std::ptrdiff_t>(range.pieces.size())) {
      result.push_back(std::move(range));
      continue;
    }
    std::vector<Range> parts = split(range);
    std::move(parts.begin(), parts.end(), std::back_inserter(result));
  }
  ranges_ = std::move(result);
}

void AdamW::step(double gradient_scale) {
  const at::NoGradGuard no_grad;
  add_new_shards();
  split_where_gradients_differ();
  for (Range& range : ranges_) {
    if (has_gradient(range.pieces.front())) {
      ++range.steps;  // the same on all ranks, of those that own nothing too
      if (range.parameters.numel() > 0) {
        update(range, gradient_scale);
      }
    }
  }
}

void AdamW::update(Range& range, double gradient_scale) const {
  if (range.parameters.scalar_type() == at::kFloat &&
      range.parameters.device().is_cpu()) {
    return update_flat(range, gradient_scale);
  }
  const at::Tensor gradients = gradient_scale == 1.0
                                   ? range.gradients
                                   : range.gradients.mul(gradient_scale);
  at::_fused_adamw_({range.parameters}, {gradients}, {range.first_moment},
                    {range.second_moment}, /*max_exp_avg_sqs=*/{},
                    {at::scalar_tensor(range.steps, at::kFloat)}, options_.lr,
                    options_.beta1, options_.beta2,
                    range.decays ? options_.weight_decay : 0.0, options_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::update_flat(Range& range, double gradient_scale) const {
  const auto t = static_cast<double>(range.steps);
  const double decay = range.decays ? options_.weight_decay : 0.0;
  const kernels::AdamWStep step{
      .gradient_scale = static_cast<float>(gradient_scale),
      .keep = static_cast<float>(1 - options_.lr * decay),
      .first_weight = static_cast<float>(1 - options_.beta1),
      .second_weight = static_cast<float>(1 - options_.beta2),
      .beta2 = static_cast<float>(options_.beta2),
      .step_size =
          static_cast<float>(options_.lr / (1 - std::pow(options_.beta1, t))),
      .root_scale =
          static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
      .eps = static_cast<float>(options_.eps)};
  float* const parameters = range.parameters.mutable_data_ptr<float>();
  const float* const gradients = range.gradients.const_data_ptr<float>();
  float* const first = range.first_moment.mutable_data_ptr<float>();
  float* const second = range.second_moment.mutable_data_ptr<float>();
  at::parallel_for(0, range.parameters.numel(), kElementsPerTask,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels::adamw({parameters + begin, gradients + begin,
                                     first + begin, second + begin},
                                    step, end - begin);
                   });
}

std::optional<AdamW::Moments> AdamW::moments(const std::string& parameter) {
  const at::NoGradGuard no_grad;
  add_new_shards();
  for (const Range& range : ranges_) {
    for (std::size_t i = 0; i < range.pieces.size(); ++i) {
      if (range.pieces[i].name == parameter) {
        const std::int64_t numel = range.pieces[i].piece.numel();
        return Moments{
            .first = range.first_moment.narrow(0, range.offsets[i], numel),
            .second = range.second_moment.narrow(0, range.offsets[i], numel),
            .steps = range.steps};
      }
    }
  }
  return std::nullopt;
}

void AdamW::set_steps(const std::map<std::string, std::int64_t>& steps) {
  std::vector<Range> result;
  for (Range& range : ranges_) {
    const auto steps_of = [&](const LocalParameter& piece) {
      const auto found = steps.find(piece.name);
      return found == steps.end() ? range.steps : found->second;
    };
    const std::int64_t first = steps_of(range.pieces.front());
    const bool same = std::all_of(
        range.pieces.begin(), range.pieces.end(),
        [&](const LocalParameter& piece) { return steps_of(piece) == first; });
    std::vector<Range> parts = same ? std::vector<Range>{range} : split(range);
    for (Range& part : parts) {
      part.steps = steps_of(part.pieces.front());
      result.push_back(std::move(part));
    }
  }
  ranges_ = std::move(result);
}

void AdamW::zero_grad() {
  root_.zero_grad(/*set_to_none=*/true);
}

}  // namespace accordion
