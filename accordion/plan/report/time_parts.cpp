// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/time_parts.h"

namespace accordion::plan {

std::vector<TimePart> time_parts(const TimePlan& time) {
  const double within =
      time.recompute_s + time.contention_s + time.tensor_s + time.context_s;
  return {
      {"computation", time.forward_s + time.backward_s - within,
       "forward and backward"},
      {"recompute", time.recompute_s, "activations computed again"},
      {"contention", time.contention_s, "computation beside collectives"},
      {"tensor", time.tensor_s, "collectives of tensor ranks"},
      {"context", time.context_s, "collectives of context ranks"},
      {"exposed_gather", time.exposed_gather_s, "waiting for parameters"},
      {"exposed_reduce", time.exposed_reduce_s, "waiting for gradients"},
      {"pipeline_bubble", time.pipeline_bubble_s, "waiting for other stages"},
      {"optimizer", time.optimizer_s, "the optimizer's step"},
      {"offload", time.offload_s, "waiting for transfers to the host"},
      {"straggler", time.straggler_s, "waiting for the slowest rank"},
  };
}

}  // namespace accordion::plan
