// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fsdp_state.h"

#include <c10/util/Exception.h>

namespace accordion {

FsdpState& sharded_state(const torch::nn::Module& root, const char* caller) {
  for (const auto& module : root.modules(/*include_self=*/true)) {
    const auto* unit = dynamic_cast<const UnitBase*>(module.get());
    const auto* hooks =
        unit != nullptr ? dynamic_cast<const FsdpHooks*>(unit->hooks().get())
                        : nullptr;
    if (hooks != nullptr) {
      hooks->state().executor->settle();
      return hooks->state();
    }
  }
  TORCH_CHECK_VALUE(false, "[", caller, "] module '", root.name(),
                    "' is not sharded. Call accordion::fully_shard(net, mesh) "
                    "first.");
}

}  // namespace accordion
