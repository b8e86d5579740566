// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/change.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

namespace accordion::plan {
namespace {

std::string key(std::string_view name, std::int64_t value) {
  return fmt::format("{}={}", name, value);
}

std::vector<std::string> mesh(int shard, int replicate) {
  return {key("dp_shard", shard), key("dp_replicate", replicate)};
}

void add_meshes(const PlanRequest& request, std::vector<Change>& changes) {
  const Strategy& strategy = request.strategy;
  const int host = std::max(1, request.cluster.gpus_per_host / strategy.tensor);
  const int data = strategy.data_ranks();
  const bool sharded = strategy.sharding != Sharding::NoShard;
  if (sharded && data % host == 0 && strategy.dp_shard != host && data > host) {
    changes.push_back({"mesh", mesh(host, data / host),
                       "parameters are gathered within a host only"});
    changes.push_back({"secondary copy",
                       {key("secondary_shard", host)},
                       "backward gathers within a host"});
  }
  if (sharded && strategy.dp_replicate > 1) {
    changes.push_back(
        {"mesh", mesh(data, 1), "one copy of the state over all ranks"});
  }
  for (const int tensor : {1, 2, 4, 8}) {
    const int all = data * strategy.tensor;
    if (tensor != strategy.tensor && all % tensor == 0 &&
        tensor <= request.cluster.gpus_per_host) {
      changes.push_back(
          {"tensor",
           {key("tensor", tensor), key("dp_shard", all / tensor),
            key("dp_replicate", 1)},
           "layers are cut over the GPUs of a host, activations with them"});
    }
  }
}

void add_strategies(const PlanRequest& request, std::vector<Change>& changes) {
  for (const auto& [sharding, why] :
       {std::pair{Sharding::FullShard, "all state is cut"},
        std::pair{Sharding::ShardGradOp,
                  "backward gathers nothing, for whole parameters in between"},
        std::pair{Sharding::ShardOptimizer,
                  "nothing is gathered in passes, for a whole copy"},
        std::pair{Sharding::NoShard, "one all-reduce, all state whole"}}) {
    if (request.strategy.sharding != sharding) {
      changes.push_back(
          {"strategy", {fmt::format("strategy={}", to_string(sharding))}, why});
    }
  }
}

void add_memory(const PlanRequest& request, std::vector<Change>& changes) {
  const Training& training = request.training;
  for (const auto& [mode, name, why] :
       {std::tuple{Checkpointing::None, "none", "nothing is computed again"},
        std::tuple{Checkpointing::Selective, "selective",
                   "only what is cheap is computed again"},
        std::tuple{Checkpointing::Full, "full",
                   "layers keep their input alone"}}) {
    if (training.checkpointing != mode) {
      changes.push_back(
          {"checkpointing", {fmt::format("checkpointing={}", name)}, why});
    }
  }
  if (training.checkpointing != Checkpointing::None) {
    for (const char* const share : {"0.75", "0.5", "0.25"}) {
      changes.push_back(
          {"checkpointing",
           {fmt::format("checkpointed_share={}", share)},
           "some layers keep their activations, where there is room"});
    }
  }
  if (training.loss_chunks < 8) {
    changes.push_back({"loss", {"loss_chunks=8"}, "fewer logits at a time"});
  }
  if (training.optimizer == OptimizerType::AdamW) {
    changes.push_back({"optimizer",
                       {"optimizer=adamw_8bit"},
                       "moments of 2 bytes a parameter in place of 8"});
  }
  const Offload& offload = request.strategy.offload;
  if (offload == Offload{}) {
    changes.push_back({"offload",
                       {"offload.optimizer=host"},
                       "state lies in the host's memory"});
    changes.push_back({"offload",
                       {"offload.activations=host"},
                       "activations wait in the host's memory"});
    changes.push_back({"offload",
                       {"offload.optimizer=host", "offload.parameters=host"},
                       "parameters and state lie in the host's memory"});
  } else {
    changes.push_back({"offload",
                       {"offload.optimizer=none", "offload.parameters=none",
                        "offload.activations=none"},
                       "nothing goes to the host and back"});
  }
}

void add_time(const PlanRequest& request, std::vector<Change>& changes) {
  const Strategy& strategy = request.strategy;
  const Training& training = request.training;
  changes.push_back({"prefetch",
                     {key("prefetch", strategy.prefetch + 1)},
                     "units are gathered earlier"});
  if (strategy.dp_replicate > 1 && training.grad_accum > 1 &&
      !strategy.defer_all_reduce) {
    changes.push_back({"all-reduce",
                       {"defer_all_reduce=true"},
                       "copies average gradients once a step"});
  }
  if (training.precision.compute == ComputeType::Fp32) {
    changes.push_back({"compute", {"compute=bf16"}, "matrix units of 16 bits"});
  }
  if (training.precision.reduce_bytes == 4) {
    changes.push_back({"reduction",
                       {"reduce_bytes=2"},
                       "gradients travel in half the bytes, rounded to bf16"});
  }
  if (training.attention == AttentionKind::Unfused) {
    changes.push_back({"attention",
                       {"attention=fused"},
                       "scores are neither written nor kept"});
  }
  if (!request.stack.fused_elementwise && !training.compiled) {
    changes.push_back({"compiler",
                       {"compiled=true"},
                       "operators over elements become one kernel"});
  }
  if (strategy.tensor > 1 && !strategy.overlap_tensor) {
    changes.push_back({"tensor overlap",
                       {"overlap_tensor=true"},
                       "tensor collectives run under the products"});
  }
  if (strategy.pipeline > 1) {
    changes.push_back({"stages",
                       {key("stages_per_rank", 2 * strategy.stages_per_rank)},
                       "the pipeline's bubble is shorter"});
  }
}

}  // namespace

std::vector<Change> possible_changes(const PlanRequest& request) {
  std::vector<Change> changes;
  if (request.strategy.data_ranks() > 1 && request.strategy.context == 1) {
    add_meshes(request, changes);
    add_strategies(request, changes);
  }
  add_memory(request, changes);
  add_time(request, changes);
  return changes;
}

std::optional<ChangedPlan> with_change(const PlanQuestion& question,
                                       const Change& change) {
  PlanQuestion changed = question;
  try {
    for (const std::string& each : change.keys) {
      state_key(each, changed);
    }
    const PlanRequest request = resolved(changed);
    return ChangedPlan{change, request, make_plan(request)};
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // the planner's own check: it does not apply here
  }
}

}  // namespace accordion::plan
