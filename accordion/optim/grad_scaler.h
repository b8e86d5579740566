// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include "accordion/optim/adamw.h"
#include "accordion/optim/grad_scaler_state.h"

namespace accordion {

/// Powers of two keep the bits of gradients, which scaling then only protects.
struct GradScalerOptions {
  /// What the loss is multiplied by at first; from 2^-126 to 2^126.
  double init_scale = 65536.0;
  /// Of the scale, after `growth_interval` finite steps in a row; above 1.
  double growth_factor = 2.0;
  /// Of the scale, after a step that was skipped; between 0 and 1.
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  /// The scale never falls below it: where it would, step() throws. A loss that
  /// is a sum over many tokens may need a scale below 1.
  double min_scale = 1.0;
  /// Skipped steps in a row that are no error; 0 allows none.
  std::int64_t max_skips = 20;
};

/// Scales the loss so that gradients in fp16 neither vanish nor overflow: what
/// torch.amp.GradScaler is, for a sharded module.
///
/// // [Note: loss scaling]
/// The smallest half is 2^-24, and gradients are often smaller. Backward of the
/// loss times S gives gradients times S, which are divided by S again when the
/// optimizer reads them, in fp32. Where S is too large, some gradient is
/// infinite: the step is skipped and S halved. After many steps without that it
/// is doubled. All ranks see whether any rank found such a gradient, so they
/// take and skip the same steps and keep the same scale.
///
///     accordion::GradScaler scaler(net);
///     for (…) {
///       optimizer.zero_grad();
///       scaler.scale(loss(net(x))).backward();      // each microbatch
///       const double norm = scaler.reduced_grad_norm();
///       scaler.step(optimizer, accordion::clip_coefficient(norm, 1.0));
///       scaler.update();
///     }
///
/// With an optimizer of torch::optim, where the norm is wanted:
///
///       scaler.unscale_();
///       accordion::clip_grad_norm_(net, 1.0);
///       scaler.step(optimizer);
///       scaler.update();
///
/// Requires  the module was passed to fully_shard, and outlives the scaler;
///           every rank makes the same calls
/// Throws    c10::ValueError for options out of range, a module that is not
///           sharded or is stored in fp16
class GradScaler {
 public:
  explicit GradScaler(torch::nn::Module& root, GradScalerOptions options = {});
  template <class Contained>
  explicit GradScaler(torch::nn::ModuleHolder<Contained>& root,
                      GradScalerOptions options = {})
      : GradScaler(static_cast<torch::nn::Module&>(*root), options) {}

  /// The loss times the scale, in fp32 where it was fp16 or bf16. Keep the loss
  /// in fp32: the gradient of one in fp16 is the scale, which must be below
  /// 65520 then.
  [[nodiscard]] torch::Tensor scale(const torch::Tensor& loss) const;

  /// The global 2-norm of the gradients without the scale, from the sums that
  /// the reductions took: tells at once whether all are finite. No pass over
  /// the gradients.
  ///
  /// Requires  as accordion::reduced_grad_norm: gradients as backward left them
  /// Comm      one all-gather of one double over the ranks that share a copy;
  ///           other replicas have the same gradients
  double reduced_grad_norm();

  /// Divides the gradients by the scale, so that they can be looked at or
  /// clipped before step(); those of parameters that fully_shard ignored too.
  ///
  /// Comm    one all-gather of 4 bytes over all ranks
  /// Throws  c10::ValueError when called twice before update()
  void unscale_();

  /// Steps, unless a gradient is infinite or no number on any rank; returns
  /// whether it did. `gradient_scale` as in AdamW::step, for gradients without
  /// the loss scale; the division by it is part of the update.
  ///
  /// Comm    as reduced_grad_norm, unless that or unscale_ went before
  /// Throws  c10::Error, on every rank, for a step to be skipped where
  ///         at_limit(), with the unit where backward first met such a gradient
  bool step(AdamW& optimizer, double gradient_scale = 1.0);
  /// The same for LibTorch's optimizers, of which there may be several.
  ///
  /// Comm    as unscale_, unless that went before
  bool step(torch::optim::Optimizer& optimizer);

  /// Ends the step: lowers the scale where it was skipped, else raises it when
  /// it is time. Between two updates the scale is the same: call it once for
  /// all microbatches of a step.
  ///
  /// Throws c10::ValueError when no step was tried since the last one
  void update();

  /// Whether the gradients of this step were found not to be finite.
  [[nodiscard]] bool found_nonfinite() const { return found_nonfinite_; }
  /// Whether a skipped step is an error now: max_skips were skipped in a row,
  /// or the scale would fall below min_scale.
  [[nodiscard]] bool at_limit() const;

  [[nodiscard]] const GradScalerState& state() const { return state_; }
  /// Throws c10::ValueError for a scale out of range, or counts below 0
  void set_state(const GradScalerState& state);

 private:
  /// Since the last update: times the scale, and not known to be finite; the
  /// same, but known; divided by it.
  enum class Gradients { Scaled, Checked, Unscaled };

  [[nodiscard]] bool skips_step() const;

  torch::nn::Module& root_;
  GradScalerOptions options_;
  GradScalerState state_;
  Gradients gradients_ = Gradients::Scaled;
  bool found_nonfinite_ = false;
};

}  // namespace accordion
