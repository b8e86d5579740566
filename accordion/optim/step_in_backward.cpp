// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/step_in_backward.h"

#include <cmath>
#include <utility>

#include <c10/util/Exception.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/shard_gradients.h"

namespace accordion {

StepInBackward::StepInBackward(torch::nn::Module& root, AdamW& optimizer,
                               Options options)
    : root_(root), optimizer_(optimizer), options_(options) {
  TORCH_CHECK_VALUE(options.max_norm >= 0, "[StepInBackward] max_norm is ",
                    options.max_norm, "; it is a bound, or 0 for none");
  TORCH_CHECK_VALUE(&optimizer.root() == &root,
                    "[StepInBackward] the AdamW was made for another module. "
                    "Make it for the module that it is to step.");
  set_unit_step(root, [this](const CompleteUnit& unit) { step(unit); });
}

StepInBackward::~StepInBackward() {
  set_unit_step(root_, {});
}

bool StepInBackward::needs_unit_norms() const {
  return options_.skip_nonfinite ||
         (options_.max_norm > 0 &&
          (options_.clip == Clip::UnitNorm || !previous_norm_));
}

void StepInBackward::step(const CompleteUnit& unit) {
  sum_of_squares_ += unit.sum_of_squares;
  std::optional<double> clipped_by = previous_norm_;
  if (needs_unit_norms()) {
    const double norm = detail::global_norm(
        unit.sum_of_squares, 2.0, shard_communicator(root_), "norm of a unit");
    if (options_.skip_nonfinite && !std::isfinite(norm) && !nonfinite_unit_) {
      nonfinite_unit_ = unit.name;
    }
    if (options_.clip == Clip::UnitNorm || !previous_norm_) {
      clipped_by = norm;
    }
  }
  if (!nonfinite_unit_) {
    optimizer_.step_unit(unit.name,
                         options_.max_norm > 0
                             ? clip_coefficient(*clipped_by, options_.max_norm)
                             : 1.0);
  }
}

StepInBackward::Step StepInBackward::end_step() {
  const Step result{
      .grad_norm = detail::global_norm(std::exchange(sum_of_squares_, 0.0), 2.0,
                                       shard_communicator(root_),
                                       "norm of the gradients"),
      .nonfinite_unit = std::exchange(nonfinite_unit_, std::nullopt)};
  if (std::isfinite(result.grad_norm)) {
    previous_norm_ = result.grad_norm;
  }
  return result;
}

}  // namespace accordion
