// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/optim/adamw.h"

namespace accordion {

struct CompleteUnit;

/// Steps an AdamW inside backward: each unit as soon as its gradient is
/// reduced, which is then freed. Of all gradients, those of a unit or two exist
/// at a time.
///
///     accordion::fully_shard(net, mesh, {.step_in_backward = true});
///     accordion::AdamW optimizer(net, {.lr = 1e-3});
///     accordion::StepInBackward stepper(net, optimizer, {.max_norm = 1.0});
///     for (auto& batch : loader) {
///       loss(net(batch.data), batch.target).backward();  // and steps
///       const double norm = stepper.end_step().grad_norm;
///     }
///
/// The optimizer sees of a step what has been reduced by then. So what needs
/// the gradients of all units first is not to be had: see `clip` and
/// `skip_nonfinite`. Otherwise the arithmetic is that of AdamW::step.
///
/// // [Note: clipping in backward]
/// The norm of all gradients is known when backward ends, and the first unit
/// steps long before. PreviousNorm scales by the norm of the step before, which
/// seldom differs much: a spike is clipped too little in its step, and the step
/// after it too much. UnitNorm holds each unit to max_norm by its own norm, at
/// once, whatever the others have. The first step of PreviousNorm, which has
/// none before it, is clipped as UnitNorm does.
///
/// Requires  module and optimizer outlive it; one at a time
/// Comm      one all-gather of one double over the ranks that share a copy in
///           end_step(); as many more as units where each unit's norm is needed
class StepInBackward {
 public:
  enum class Clip { PreviousNorm, UnitNorm };

  struct Options {
    double max_norm = 0.0;  ///< of gradients, by `clip`; 0: not clipped
    Clip clip = Clip::PreviousNorm;
    /// Leaves out a unit whose gradient is infinite or no number on some rank,
    /// and the units behind it in the same step. Those before it were stepped.
    bool skip_nonfinite = false;
  };

  /// Throws c10::ValueError for a module that was not sharded with
  ///        step_in_backward, an optimizer of another one, or max_norm < 0
  StepInBackward(torch::nn::Module& root, AdamW& optimizer, Options options);
  template <class Contained>
  StepInBackward(torch::nn::ModuleHolder<Contained>& root, AdamW& optimizer,
                 Options options)
      : StepInBackward(static_cast<torch::nn::Module&>(*root), optimizer,
                       options) {}
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;
  ~StepInBackward();

  /// What the backward since the last call did, the same on every rank.
  struct Step {
    double grad_norm = 0.0;  ///< of all units, before clipping
    /// FQN ("" for the root) of the first unit that skip_nonfinite left out.
    std::optional<std::string> nonfinite_unit = std::nullopt;
  };
  Step end_step();

  /// By which PreviousNorm clips next: the last finite one. A run that is
  /// resumed goes on with it; nullopt: none yet.
  [[nodiscard]] std::optional<double> previous_norm() const {
    return previous_norm_;
  }
  void set_previous_norm(std::optional<double> norm) { previous_norm_ = norm; }

 private:
  void step(const CompleteUnit& unit);
  [[nodiscard]] bool needs_unit_norms() const;

  torch::nn::Module& root_;
  AdamW& optimizer_;
  Options options_;
  std::optional<double> previous_norm_;
  double sum_of_squares_ = 0.0;  // of this rank, in this step
  std::optional<std::string> nonfinite_unit_;
};

}  // namespace accordion
