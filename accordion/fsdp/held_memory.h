// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion {

class Executor;

/// sharded_bytes of the module that an executor drives.
[[nodiscard]] ShardedBytes sharded_bytes(const Executor& executor);

/// Calls `visit` with each tensor that units keep of their own: shards, their
/// gradients, whole copies. Slots are not among them.
void for_each_held_tensor(const Executor& executor,
                          const std::function<void(const at::Tensor&)>& visit);

/// How many processes of this host have the parameter slots of an executor in
/// common; 1: each has slots of its own. `local_ranks`: ranks on this host.
[[nodiscard]] int ranks_sharing_slots(const Executor& executor,
                                      int local_ranks);

}  // namespace accordion
