// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace accordion {

/// Scales the gradients so that their global p-norm is at most `max_norm`, and
/// returns the norm before, the same on every rank: what
/// torch::nn::utils::clip_grad_norm_ does for a module that is not sharded.
///
/// Comm   one all-gather of one double over the ranks that share a copy; that
///        of first_nonfinite_unit before an error
/// Throws c10::ValueError for max_norm < 0, or norm_type other than a number
///        >= 1 or infinity; for a norm that is not finite when
///        `error_if_nonfinite`, with the first unit that is at fault
double clip_grad_norm_(torch::nn::Module& root, double max_norm,
                       double norm_type = 2.0, bool error_if_nonfinite = false);

template <class Contained>
double clip_grad_norm_(torch::nn::ModuleHolder<Contained>& root,
                       double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false) {
  return clip_grad_norm_(static_cast<torch::nn::Module&>(*root), max_norm,
                         norm_type, error_if_nonfinite);
}

/// The global 2-norm of the gradients that backward reduced, the same on every
/// rank, from sums that the reductions took on their way: without a pass over
/// the gradients. With clip_coefficient and AdamW::step it clips for free:
///
///     optimizer.step(clip_coefficient(reduced_grad_norm(net), max_norm));
///
/// Requires  nothing but zero_grad() touched the gradients since backward;
///           clip_grad_norm_ looks at them as they are
/// Comm      one all-gather of one double, as clip_grad_norm_
double reduced_grad_norm(const torch::nn::Module& root);

template <class Contained>
double reduced_grad_norm(const torch::nn::ModuleHolder<Contained>& root) {
  return reduced_grad_norm(static_cast<const torch::nn::Module&>(*root));
}

/// What clip_grad_norm_ multiplies gradients of this norm by: 1 where they are
/// small enough; NaN for a NaN.
///
/// Throws c10::ValueError for max_norm < 0
double clip_coefficient(double norm, double max_norm);

/// FQN ("" for the root) of the unit where backward first met a gradient that
/// is infinite or no number on any rank, taking parameters to be used in the
/// order in which they are registered; nullopt where all are finite. The same
/// on every rank, all of which call it.
///
/// Comm  one all-gather of one integer over the ranks that share a copy
std::optional<std::string> first_nonfinite_unit(const torch::nn::Module& root);

template <class Contained>
std::optional<std::string> first_nonfinite_unit(
    const torch::nn::ModuleHolder<Contained>& root) {
  return first_nonfinite_unit(static_cast<const torch::nn::Module&>(*root));
}

}  // namespace accordion
