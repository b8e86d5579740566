// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/plan_keys.h"

// The field of a key: PLAN_FIELD(training.seq_len).
#define PLAN_FIELD(member) \
  [](PlanSettings& settings) -> PlanField { return &settings.member; }

namespace accordion::plan {
namespace {

std::vector<std::string_view> places() {
  return {"none", "host", "disk"};
}

std::vector<std::string_view> stacks() {
  std::vector<std::string_view> names;
  for (const SoftwareStack& stack : software_stacks()) {
    names.push_back(stack.name);
  }
  return names;
}

std::vector<PlanKey> mesh_keys() {
  return {
      {"strategy",
       PLAN_FIELD(strategy.sharding),
       "What of the state is cut among data-parallel ranks: no_shard (DDP), "
       "shard_optimizer (ZeRO-1), shard_grad_op (ZeRO-2 as in FSDP2), "
       "deepspeed_zero2 (whole 16-bit parameters stay), full_shard (ZeRO-3); "
       "hybrid: full_shard within a host, copies across.",
       {"no_shard", "shard_optimizer", "shard_grad_op", "deepspeed_zero2",
        "full_shard", "hybrid"}},
      {"dp_shard",
       PLAN_FIELD(strategy.dp_shard),
       "Ranks that one copy of the state is cut over; 0: open.",
       {},
       "the GPUs that other axes leave; hybrid: those of a host"},
      {"dp_replicate",
       PLAN_FIELD(strategy.dp_replicate),
       "Copies of the state; 0: open.",
       {},
       "1; hybrid, or with dp_shard stated: what is left"},
      {"tensor", PLAN_FIELD(strategy.tensor), "Tensor-parallel ranks."},
      {"sequence_parallel", PLAN_FIELD(strategy.sequence_parallel),
       "Norms and residuals are cut along the sequence among tensor ranks."},
      {"overlap_tensor", PLAN_FIELD(strategy.overlap_tensor),
       "Tensor collectives run in parts, under the products they belong to."},
      {"pipeline", PLAN_FIELD(strategy.pipeline), "Pipeline stages."},
      {"stages_per_rank", PLAN_FIELD(strategy.stages_per_rank),
       "Above 1: interleaved stages."},
      {"context", PLAN_FIELD(strategy.context),
       "Ranks that a sequence is cut over (ring attention); they shard "
       "parameters too."},
      {"secondary_shard", PLAN_FIELD(strategy.secondary_shard),
       "hpZ: backward gathers from a second copy, cut over this many ranks; "
       "0: from the first."},
      {"defer_all_reduce", PLAN_FIELD(strategy.defer_all_reduce),
       "Copies average gradients at a step's last microbatch only."},
      {"prefetch", PLAN_FIELD(strategy.prefetch), "Units gathered ahead."},
      {"offload.parameters", PLAN_FIELD(strategy.offload.parameters),
       "Where sharded parameters lie.", places()},
      {"offload.optimizer", PLAN_FIELD(strategy.offload.optimizer),
       "Where optimizer state and gradients lie.", places()},
      {"offload.step_on_device", PLAN_FIELD(strategy.offload.step_on_device),
       "Offloaded state comes to the device for its step."},
      {"offload.gradients", PLAN_FIELD(strategy.offload.gradients),
       "Where gradients wait for a step on the device.", places()},
      {"offload.activations", PLAN_FIELD(strategy.offload.activations),
       "Where activations wait for backward.", places()},
  };
}

std::vector<PlanKey> training_keys() {
  return {
      {"seq_len", PLAN_FIELD(training.seq_len), "Tokens of a sequence."},
      {"micro_batch", PLAN_FIELD(training.micro_batch),
       "Sequences that a data rank takes at a time."},
      {"grad_accum", PLAN_FIELD(training.grad_accum),
       "Microbatches of a step; with a pipeline, those in it."},
      {"batch_tokens", PLAN_FIELD(batch_tokens),
       "Tokens of a step of all ranks: sets grad_accum, and --search keeps it; "
       "0: what micro_batch and grad_accum give."},
      {"compute",
       PLAN_FIELD(training.precision.compute),
       "Type of matrix products.",
       {"fp32", "fp16", "bf16", "fp8"}},
      {"parameter_bytes", PLAN_FIELD(training.precision.parameter_bytes),
       "Bytes of a stored parameter."},
      {"master_copy", PLAN_FIELD(training.precision.master_copy),
       "A 4-byte copy that the optimizer steps, beside stored parameters."},
      {"gather_bytes",
       PLAN_FIELD(training.precision.gather_bytes),
       "Bytes of a parameter that is gathered.",
       {},
       "2; with compute=fp32 4"},
      {"gradient_bytes", PLAN_FIELD(training.precision.gradient_bytes),
       "Bytes of a gradient that waits for the optimizer."},
      {"reduce_bytes", PLAN_FIELD(training.precision.reduce_bytes),
       "Bytes of a gradient on its way between ranks."},
      {"optimizer",
       PLAN_FIELD(training.optimizer),
       "Its state: 8, 4, about 2, 4 and 0 bytes a parameter.",
       {"adamw", "adamw_bf16", "adamw_8bit", "momentum", "sgd"}},
      {"step_in_backward", PLAN_FIELD(training.step_in_backward),
       "Units step, and free their gradients, in backward."},
      {"checkpointing",
       PLAN_FIELD(training.checkpointing),
       "What of a layer's activations is computed again in backward.",
       {"none", "selective", "full"}},
      {"checkpointed_share", PLAN_FIELD(training.checkpointed_share),
       "Share of the layers that are checkpointed, from 0 to 1."},
      {"attention",
       PLAN_FIELD(training.attention),
       "fused never writes the scores (FlashAttention).",
       {"fused", "unfused"}},
      {"loss_chunks", PLAN_FIELD(training.loss_chunks),
       "Parts of the tokens that the loss is computed over in turn."},
      {"compiled", PLAN_FIELD(training.compiled),
       "A compiler fuses operators over elements."},
      {"stack", PLAN_FIELD(stack),
       "The program that trains: what its operators move and allocate.",
       stacks()},
  };
}

std::vector<PlanKey> price_keys() {
  return {
      {"train_tokens", PLAN_FIELD(prices.train_tokens),
       "Tokens of the whole run, for time, energy and cost; 0: not shown."},
      {"gpu_hour_price", PLAN_FIELD(prices.gpu_hour_price),
       "Price of one GPU for one hour; 0: none."},
      {"kwh_price", PLAN_FIELD(prices.kwh_price), "Price of one kWh; 0: none."},
      {"power_factor", PLAN_FIELD(prices.power_factor),
       "Watts drawn for each watt of the boards: hosts, network, cooling."},
  };
}

}  // namespace

std::span<const PlanKey> plan_keys() {
  static const std::vector<PlanKey> kKeys = [] {
    std::vector<PlanKey> keys = mesh_keys();
    for (const auto& part : {training_keys(), price_keys()}) {
      keys.insert(keys.end(), part.begin(), part.end());
    }
    return keys;
  }();
  return kKeys;
}

}  // namespace accordion::plan

#undef PLAN_FIELD
