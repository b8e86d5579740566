// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/controls.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <c10/util/Exception.h>

#include "accordion/comm/gather_values.h"
#include "accordion/fsdp/fsdp_state.h"

namespace accordion {

namespace {

UnitRef unit_of(const torch::nn::Module& module, const char* caller) {
  const FsdpHooks* hooks = hooks_of(module);
  TORCH_CHECK_VALUE(hooks != nullptr, "[", caller, "] module '", module.name(),
                    "' is no unit of a sharded module. Pass one that is "
                    "declared as accordion::Unit, after fully_shard.");
  return {hooks->state(), hooks->unit()};
}

void set_below(const torch::nn::Module& module, const char* caller,
               const std::function<void(UnitSettings&)>& set) {
  for (const UnitRef& unit : units_below(module, caller)) {
    set(unit.executor().settings_of(unit.unit));
  }
}

std::vector<int> indices_of(const UnitRef& unit,
                            const std::vector<torch::nn::Module*>& modules,
                            const char* caller) {
  std::vector<int> result;
  for (const torch::nn::Module* module : modules) {
    const UnitRef other = unit_of(*module, caller);
    TORCH_CHECK_VALUE(other.state == unit.state, "[", caller, "] module '",
                      module->name(),
                      "' was sharded by another call of fully_shard, which has "
                      "a schedule of its own");
    result.push_back(other.unit);
  }
  return result;
}

}  // namespace

void set_is_last_backward(torch::nn::Module& root, bool is_last) {
  for (const UnitRef& unit : units_below(root, "set_is_last_backward")) {
    unit.executor().pass_settings().is_last_backward = is_last;
  }
}

void set_requires_gradient_sync(torch::nn::Module& unit, bool sync) {
  set_below(unit, "set_requires_gradient_sync",
            [sync](UnitSettings& settings) { settings.gradient_sync = sync; });
}

void set_requires_all_reduce(torch::nn::Module& unit, bool all_reduce) {
  set_below(unit, "set_requires_all_reduce",
            [all_reduce](UnitSettings& settings) {
              settings.all_reduce = all_reduce;
            });
}

void set_reshard_after_backward(torch::nn::Module& unit, bool reshard) {
  set_below(unit, "set_reshard_after_backward",
            [reshard](UnitSettings& settings) {
              settings.reshard_after_backward = reshard;
            });
}

void set_reshard_after_forward(torch::nn::Module& unit, bool reshard) {
  set_below(unit, "set_reshard_after_forward",
            [reshard](UnitSettings& settings) {
              settings.reshard_after_forward = reshard;
              settings.stays_in_evaluation = !reshard;
            });
}

void set_gradient_divide_factor(torch::nn::Module& root,
                                std::optional<double> factor) {
  TORCH_CHECK_VALUE(factor.value_or(1.0) > 0,
                    "[set_gradient_divide_factor] the factor is ",
                    factor.value_or(1.0),
                    "; sums of gradients are divided by it, so it is above 0");
  for (const UnitRef& unit : units_below(root, "set_gradient_divide_factor")) {
    unit.executor().pass_settings().divide_factor = factor;
  }
}

NoSync::NoSync(torch::nn::Module& root)
    : state_(units_below(root, "NoSync").front().state) {
  for (std::size_t i = 0; i < state_->executor->units().size(); ++i) {
    UnitSettings& settings = state_->executor->settings_of(static_cast<int>(i));
    before_.push_back(settings.gradient_sync);
    settings.gradient_sync = false;
  }
}

NoSync::~NoSync() {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    state_->executor->settings_of(static_cast<int>(i)).gradient_sync =
        before_[i];
  }
}

void UnshardHandle::wait() {
  state_->executor->finish_unshard(unit_);
}

UnshardHandle unshard(torch::nn::Module& unit) {
  const UnitRef ref = unit_of(unit, "unshard");
  ref.executor().start_unshard(ref.unit);
  return {ref.state, ref.unit};
}

void reshard(torch::nn::Module& unit) {
  for (const UnitRef& ref : units_below(unit, "reshard")) {
    ref.executor().reshard_now(ref.unit);
  }
}

void set_forward_prefetch(torch::nn::Module& unit,
                          const std::vector<torch::nn::Module*>& units) {
  const UnitRef ref = unit_of(unit, "set_forward_prefetch");
  ref.executor().settings_of(ref.unit).forward_prefetch =
      indices_of(ref, units, "set_forward_prefetch");
}

void set_backward_prefetch(torch::nn::Module& unit,
                           const std::vector<torch::nn::Module*>& units) {
  const UnitRef ref = unit_of(unit, "set_backward_prefetch");
  ref.executor().settings_of(ref.unit).backward_prefetch =
      indices_of(ref, units, "set_backward_prefetch");
}

bool any_rank_has_data(const torch::nn::Module& root, bool has_data) {
  const UnitRef ref = units_below(root, "any_rank_has_data").front();
  Communicator& world = ref.state->mesh.world();
  const std::vector<std::int32_t> all =
      gather_values<std::int32_t>(world, has_data ? 1 : 0, "any_rank_has_data");
  return std::any_of(all.begin(), all.end(),
                     [](std::int32_t flag) { return flag != 0; });
}

void join_pass(torch::nn::Module& root) {
  units_below(root, "join_pass").front().executor().join_pass();
}

void set_unit_step(torch::nn::Module& root,
                   std::function<void(const CompleteUnit& unit)> step) {
  const FsdpState& state = unsettled_state(root, "set_unit_step");
  Executor& executor = *state.executor;
  TORCH_CHECK_VALUE(state.options.step_in_backward,
                    "[set_unit_step] the module was sharded without "
                    "step_in_backward, so its gradients stay for a step after "
                    "backward. Set FsdpOptions::step_in_backward.");
  if (!step) {
    executor.set_unit_step({});
    return;
  }
  TORCH_CHECK_VALUE(!executor.has_unit_step(),
                    "[set_unit_step] an optimizer steps the module in backward "
                    "already. Let one StepInBackward live at a time.");
  executor.set_unit_step([&executor, step = std::move(step)](int unit) {
    const FsdpUnit& u = *executor.units()[static_cast<std::size_t>(unit)];
    step({.name = u.name(), .sum_of_squares = u.gradient_squares()});
  });
}

void set_step_trace(torch::nn::Module& root, std::shared_ptr<StepTrace> trace) {
  sharded_state(root, "set_step_trace").executor->set_trace(std::move(trace));
}

}  // namespace accordion
