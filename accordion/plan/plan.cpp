// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/plan.h"

#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

void check_at_least(std::string_view field, std::int64_t value,
                    std::int64_t least) {
  if (value < least) {
    throw std::invalid_argument(
        fmt::format("[plan] {} is {}, but must be at least {}; the nearest "
                    "valid value is {}.",
                    field, value, least, least));
  }
}

void check_divides(std::string_view field, std::int64_t value,
                   std::string_view of, std::int64_t total) {
  if (total % value != 0) {
    throw std::invalid_argument(fmt::format(
        "[plan] {} is {}, which does not divide {} {}; the nearest valid value "
        "is {}.",
        field, value, of, total, nearest_divisor(total, value)));
  }
}

void check_sizes(const Strategy& strategy, const Training& training) {
  check_at_least("dp_replicate", strategy.dp_replicate, 1);
  check_at_least("dp_shard", strategy.dp_shard, 1);
  check_at_least("tensor", strategy.tensor, 1);
  check_at_least("pipeline", strategy.pipeline, 1);
  check_at_least("context", strategy.context, 1);
  check_at_least("stages_per_rank", strategy.stages_per_rank, 1);
  check_at_least("secondary_shard", strategy.secondary_shard, 0);
  check_at_least("prefetch", strategy.prefetch, 0);
  check_at_least("seq_len", training.seq_len, 1);
  check_at_least("micro_batch", training.micro_batch, 1);
  check_at_least("grad_accum", training.grad_accum, 1);
  check_at_least("loss_chunks", training.loss_chunks, 1);
  if (!(training.checkpointed_share >= 0.0 &&
        training.checkpointed_share <= 1.0)) {
    throw std::invalid_argument(fmt::format(
        "[plan] checkpointed_share is {}, but must be from 0 to 1; the nearest "
        "valid value is {}.",
        training.checkpointed_share,
        training.checkpointed_share > 1.0 ? 1 : 0));
  }
}

void check_mesh(const Strategy& strategy, const Cluster& cluster) {
  const std::int64_t wanted = strategy.num_gpus();
  const std::int64_t gpus = cluster.num_gpus();
  if (wanted == gpus) {
    return;
  }
  const std::int64_t others = wanted / strategy.dp_shard;
  const std::string remedy =
      gpus % others == 0
          ? fmt::format("the nearest valid dp_shard is {}", gpus / others)
          : fmt::format("{} GPUs would do", wanted);
  throw std::invalid_argument(fmt::format(
      "[plan] dp_replicate {} * dp_shard {} * context {} * tensor {} * "
      "pipeline {} is {}, but the cluster has {} GPUs; {}.",
      strategy.dp_replicate, strategy.dp_shard, strategy.context,
      strategy.tensor, strategy.pipeline, wanted, gpus, remedy));
}

void check_cuts(const ModelShape& model, const Strategy& strategy,
                const Training& training) {
  check_divides("tensor", strategy.tensor, "the number of heads",
                model.num_heads);
  check_divides("context", strategy.context, "the sequence length",
                training.seq_len);
  const std::int64_t stages =
      std::int64_t{strategy.pipeline} * strategy.stages_per_rank;
  if (stages > model.num_layers) {
    throw std::invalid_argument(fmt::format(
        "[plan] pipeline {} * stages_per_rank {} is more than the {} layers; "
        "the nearest valid pipeline is {}.",
        strategy.pipeline, strategy.stages_per_rank, model.num_layers,
        std::max<std::int64_t>(1,
                               model.num_layers / strategy.stages_per_rank)));
  }
  if (strategy.secondary_shard > 0) {
    check_divides("secondary_shard", strategy.secondary_shard,
                  "the ranks of a copy", strategy.shard_ranks());
  }
}

void check_types(const Precision& precision, const GpuType& gpu) {
  for (const auto& [field, bytes] :
       {std::pair{"parameter_bytes", precision.parameter_bytes},
        std::pair{"gather_bytes", precision.gather_bytes},
        std::pair{"gradient_bytes", precision.gradient_bytes},
        std::pair{"reduce_bytes", precision.reduce_bytes}}) {
    if (bytes != 1 && bytes != 2 && bytes != 4) {
      throw std::invalid_argument(fmt::format(
          "[plan] {} is {}, but must be 1, 2 or 4; the nearest valid value is "
          "{}.",
          field, bytes,
          bytes < 1    ? 1
          : bytes == 3 ? 2
                       : 4));
    }
  }
  if (precision.compute == ComputeType::Fp8 && gpu.peak_8bit_flops <= 0.0) {
    throw std::invalid_argument(fmt::format(
        "[plan] compute is fp8, but {} has no 8-bit matrix units; the nearest "
        "valid value is bf16.",
        gpu.name));
  }
}

}  // namespace

void check(const PlanRequest& request) {
  check(request.model);
  check_sizes(request.strategy, request.training);
  check_mesh(request.strategy, request.cluster);
  check_cuts(request.model, request.strategy, request.training);
  check_types(request.training.precision, request.cluster.gpu);
}

Plan make_plan(const PlanRequest& request) {
  check(request);
  Plan plan;
  plan.memory = plan_memory(request);
  plan.time = plan_time(request);
  const Training& training = request.training;
  plan.tokens_per_step = training.micro_batch * training.grad_accum *
                         training.seq_len * request.strategy.data_ranks();
  plan.tokens_per_s_per_gpu = static_cast<double>(plan.tokens_per_step) /
                              plan.time.step_s /
                              static_cast<double>(request.strategy.num_gpus());
  plan.model_flops_per_s_per_gpu =
      plan.tokens_per_s_per_gpu *
      request.model.model_flops_per_token(training.seq_len);
  plan.mfu =
      plan.model_flops_per_s_per_gpu / request.cluster.gpu.peak_16bit_flops;
  plan.fits = plan.memory.reserved_bytes <= request.cluster.gpu.memory_bytes;
  return plan;
}

}  // namespace accordion::plan
