// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/step_guard.h"

#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion {
namespace {

/// Weight of the losses before in the running mean, which so spans some 50.
constexpr double kKeep = 0.98;
/// Losses before a mean is one.
constexpr std::int64_t kMinLosses = 20;

/// The running mean without its bias towards zero.
double mean_of(const StepGuard::Memory& memory) {
  return memory.mean_loss /
         (1 - std::pow(kKeep, static_cast<double>(memory.num_losses)));
}

}  // namespace

bool StepGuard::watches_loss() const {
  return config_.train.spike != "allow";
}

StepGuard::Judgement StepGuard::judge(const Step& step,
                                      const std::function<std::string()>& why) {
  if (!std::isfinite(step.grad_norm) && config_.train.nonfinite != "allow") {
    return act(config_.train.nonfinite,
               fmt::format("The gradient at step {} is not finite (norm {})",
                           step.number, step.grad_norm),
               why);
  }
  if (watches_loss() && is_spike(step.loss)) {
    return act(config_.train.spike,
               fmt::format("The loss at step {} is {:.4f}, more than {} times "
                           "the mean before it (train.spike_factor)",
                           step.number, step.loss, config_.train.spike_factor),
               [&] { return fmt::format("{:.4f}", mean_of(memory_)); });
  }
  memory_.skipped = 0;
  remember(step.loss);
  return {};
}

StepGuard::Judgement StepGuard::act(const std::string& policy,
                                    const std::string& fault,
                                    const std::function<std::string()>& why) {
  std::string history = "\"skip\" leaves out such steps.";
  if (policy == "skip") {
    if (++memory_.skipped <= config_.train.max_skips) {
      return {Verdict::Skip, fault};
    }
    history = fmt::format(
        "The {} steps before were skipped for such a fault, as many as "
        "train.max_skips allows.",
        config_.train.max_skips);
  }
  if (policy == "rollback") {
    if (++memory_.rollbacks <= config_.train.max_rollbacks) {
      return {Verdict::RollBack, fmt::format("{}: {}", fault, why())};
    }
    history = fmt::format(
        "The run went back to a checkpoint {} times, as often as "
        "train.max_rollbacks allows.",
        config_.train.max_rollbacks);
  }
  throw std::runtime_error(
      fmt::format("[train] {}: {}. {} Lower optimizer.lr (now {}), lengthen "
                  "schedule.warmup_steps, or use fsdp.param_dtype = \"fp32\".",
                  fault, why(), history, config_.optimizer.lr));
}

bool StepGuard::is_spike(double loss) const {
  return memory_.num_losses >= kMinLosses &&
         loss > config_.train.spike_factor * mean_of(memory_);
}

void StepGuard::remember(double loss) {
  if (watches_loss() && std::isfinite(loss)) {
    memory_.mean_loss = kKeep * memory_.mean_loss + (1 - kKeep) * loss;
    ++memory_.num_losses;
  }
}

}  // namespace accordion
