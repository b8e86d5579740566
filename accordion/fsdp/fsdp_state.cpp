// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fsdp_state.h"

#include <c10/util/Exception.h>

namespace accordion {

const FsdpHooks* hooks_of(const torch::nn::Module& module) {
  const auto* unit = dynamic_cast<const UnitBase*>(&module);
  return unit == nullptr ? nullptr
                         : dynamic_cast<const FsdpHooks*>(unit->hooks().get());
}

FsdpState& sharded_state(const torch::nn::Module& root, const char* caller) {
  FsdpState& state = unsettled_state(root, caller);
  state.executor->settle();
  return state;
}

FsdpState& writable_state(const torch::nn::Module& root, const char* caller) {
  FsdpState& state = sharded_state(root, caller);
  for (const auto& unit : state.executor->units()) {
    unit->forget_copies();
  }
  return state;
}

FsdpState& unsettled_state(const torch::nn::Module& root, const char* caller) {
  for (const auto& module : root.modules(/*include_self=*/true)) {
    if (const FsdpHooks* hooks = hooks_of(*module)) {
      return *hooks->state();
    }
  }
  TORCH_CHECK_VALUE(false, "[", caller, "] module '", root.name(),
                    "' is not sharded. Call accordion::fully_shard(net, mesh) "
                    "first.");
}

std::vector<UnitRef> units_below(const torch::nn::Module& module,
                                 const char* caller) {
  std::vector<UnitRef> result;
  for (const auto& child : module.modules(/*include_self=*/true)) {
    if (const FsdpHooks* hooks = hooks_of(*child)) {
      result.push_back({hooks->state(), hooks->unit()});
    }
  }
  TORCH_CHECK_VALUE(!result.empty(), "[", caller, "] module '", module.name(),
                    "' contains no unit of a sharded module. Call "
                    "accordion::fully_shard(net, mesh) first, and pass a "
                    "module that is, or contains, a unit.");
  return result;
}

}  // namespace accordion
