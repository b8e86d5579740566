// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "accordion/plan/explain/explanations.h"
#include "accordion/plan/known_models.h"
#include "accordion/plan/plan.h"

namespace accordion::plan::detail {
namespace {

constexpr const char* kJaxNotes =
    "\"FSDP: Fully Sharded Data Parallel\", flaxdocs (github.com/mlnomadpy)";

PlanRequest llama_7b(const char* cluster, std::int64_t micro_batch) {
  PlanRequest request;
  request.model = *known_model("llama-2-7b");
  request.cluster = parse_cluster(cluster);
  request.strategy.dp_shard = request.cluster.num_gpus();
  request.training.seq_len = 2048;
  request.training.micro_batch = micro_batch;
  request.training.checkpointing = Checkpointing::Full;
  request.stack = find_stack("accordion");
  return request;
}

/// Share of a step that is not spent waiting for other ranks.
double efficiency(const PlanRequest& request) {
  const TimePlan time = make_plan(request).time;
  return 1.0 - time.exposed_s() / time.step_s;
}

PlanRequest with_link(const char* link, std::int64_t micro_batch) {
  PlanRequest request = llama_7b("8xH100", micro_batch);
  request.cluster.inside = find_link(link);
  return request;
}

/// Tokens of a microbatch whose computation is as long as its collectives:
/// 6 FLOPs a parameter and token against two gathers and a reduction.
double tokens_to_hide(const PlanRequest& request) {
  const Cluster& cluster = request.cluster;
  const Precision& precision = request.training.precision;
  const double bytes = 2.0 * precision.gather_bytes + precision.reduce_bytes;
  const double flops =
      cluster.gpu.peak_16bit_flops * cluster.gpu.gemm_efficiency;
  return bytes * flops /
         (6.0 * cluster.inside.bytes_per_s * cluster.inside.efficiency);
}

}  // namespace

Explanation explain_batch_size() {
  const auto one_after_the_other = [](double compute_ms, double wait_ms) {
    return compute_ms / (compute_ms + wait_ms);
  };
  const auto beside = [](double compute_ms, double wait_ms) {
    return compute_ms / std::max(compute_ms, wait_ms);
  };
  const char* const cluster = "8x8xA100-80GB-Ethernet-100";
  Explanation explanation = {
      .name = {},
      .title = "A larger batch pays for the same communication",
      .source = kJaxNotes,
      .figures = {{"batch 32: 10 ms of work, 15 ms sending",
                   "one after the other", one_after_the_other(10, 15), "", 0.4},
                  {"batch 256: 80 ms of work, 15 ms sending",
                   "one after the other", one_after_the_other(80, 15), "",
                   0.84},
                  {"batch 32", "overlapped at best", beside(10, 15), ""},
                  {"batch 256", "overlapped at best", beside(80, 15), ""}},
      .conclusions = {
          "Collectives of FSDP move parameters and gradients: their time does "
          "not depend on the batch. Overlapping hides them as soon as "
          "computation is longer.",
          "So take the largest microbatch that fits; `--search` does."}};
  for (const int batch : {1, 2, 4, 8, 16}) {
    explanation.figures.push_back(
        {fmt::format("Llama 2 7B, 64 A100, 100 Gb/s a GPU, batch {}", batch),
         "the planner: step without waiting",
         efficiency(llama_7b(cluster, batch)), ""});
  }
  return explanation;
}

Explanation explain_interconnect() {
  Explanation explanation = {
      .name = {},
      .title = "When an interconnect is too slow for FSDP",
      .source = kJaxNotes,
      .figures = {},
      .conclusions = {
          "The source's rates count both ways: NVLink 900 GB/s excellent, PCIe "
          "4 of 64 GB/s acceptable, 10 Gb/s Ethernet (1.25 GB/s one way) too "
          "slow, at least 100 GB/s wanted.",
          "What decides is the tokens a GPU works on at a time. Below the "
          "number that hides the collectives a step takes as long as they do; "
          "hybrid sharding, a second copy (secondary_shard) and larger "
          "microbatches move it."}};
  for (const char* const link :
       {"NVLink4", "PCIe5", "PCIe4", "IB-400", "Ethernet-100", "Ethernet-10"}) {
    const PlanRequest request = with_link(link, 4);
    explanation.figures.push_back(
        {fmt::format("Llama 2 7B on 8 H100, {}", link),
         fmt::format("8,192 tokens a GPU; {:.2f} GB/s one way",
                     request.cluster.inside.bytes_per_s / 1e9),
         efficiency(request), ""});
    explanation.figures.push_back(
        {fmt::format("tokens a GPU that hide it, {}", link),
         "two gathers and a reduction under 6 FLOPs",
         tokens_to_hide(request) / 1e3, "thousand"});
  }
  return explanation;
}

Explanation explain_communication() {
  PlanRequest request = llama_7b("8xH100", 1);
  request.training.precision.reduce_bytes = 2;
  const auto sent = [&](Sharding sharding) {
    request.strategy.sharding = sharding;
    return make_plan(request).time.collective_bytes;
  };
  const double ddp = sent(Sharding::NoShard);
  return {
      .name = {},
      .title = "What a rank sends in a step, against data parallelism",
      .source = std::string(kJaxNotes) + "; Zhao et al. 2023, arXiv:2304.11277",
      .figures = {{"FSDP, all-gather and reduce-scatter",
                   "DDP's all-reduce counted as one transfer", 2.0, "x", 2},
                  {"DDP", "Llama 2 7B on 8 ranks, 16 bits", ddp / 1e9, "GB"},
                  {"ZeRO-1", "reduction and gather",
                   sent(Sharding::ShardOptimizer) / ddp, "x"},
                  {"ZeRO-2 as in FSDP2", "one gather, one reduction",
                   sent(Sharding::ShardGradOp) / ddp, "x"},
                  {"ZeRO-3", "two gathers, one reduction",
                   sent(Sharding::FullShard) / ddp, "x"}},
      .conclusions = {
          "A ring all-reduce is a reduce-scatter and an all-gather: 2 P "
          "(N - 1)/N elements. Full sharding gathers twice and reduces "
          "once, 3 P (N - 1)/N: 1.5 times as much, not twice.",
          "The root is gathered once, so that the ratio is a little below "
          "1.5."}};
}

}  // namespace accordion::plan::detail
