// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "accordion/plan/explain/explanations.h"
#include "accordion/plan/memory_plan.h"
#include "accordion/plan/strategy.h"
#include "accordion/plan/training.h"
#include "accordion/plan/zero_formulas.h"

namespace accordion::plan::detail {
namespace {

constexpr const char* kMixed = "bf16 weight and gradient, fp32 copy and Adam";
constexpr const char* kFull = "16 bytes a parameter";
constexpr const char* kWeights = "weights alone, 4 bytes each";
constexpr const char* kJaxNotes =
    "\"FSDP: Fully Sharded Data Parallel\", flaxdocs (github.com/mlnomadpy)";

/// Bytes of state a parameter as the planner counts them.
double planned_bytes(const Precision& precision, OptimizerType optimizer) {
  Training training;
  training.precision = precision;
  training.optimizer = optimizer;
  return state_memory(1.0, {}, training).total();
}

/// Weights alone as the article has it, and all state beside it.
void add_both(Explanation& explanation, const std::string& what, double params,
              int ranks, std::optional<double> stated) {
  explanation.figures.push_back(
      {what, kWeights, gigabytes(params, 4, ranks), "GB", stated});
  explanation.figures.push_back(
      {what, kFull, gigabytes(params, 16, ranks), "GB"});
}

constexpr const char* kWeightsAreNotAll =
    "The source counts weights in fp32 and nothing else. Training with Adam "
    "holds 16 bytes a parameter, four times as much, before any activation.";

}  // namespace

Explanation explain_bytes_per_parameter() {
  const Precision half = {.parameter_bytes = 2,
                          .master_copy = true,
                          .gather_bytes = 2,
                          .gradient_bytes = 2,
                          .reduce_bytes = 2};
  const Precision stored_fp32;
  const double total = planned_bytes(half, OptimizerType::AdamW);
  const double optimizer = 4.0 + state_bytes(OptimizerType::AdamW);
  return {
      .name = {},
      .title = "Why training holds 16 bytes for each parameter",
      .source = "\"Fully Sharded Data Parallel (FSDP)\", a handbook's chapter",
      .figures =
          {{"weight", "bf16", 2, "bytes", 2},
           {"gradient", "bf16", 2, "bytes", 2},
           {"optimizer: copy, momentum, variance", "fp32", optimizer, "bytes",
            12},
           {"in all", kMixed, total, "bytes", 16},
           {"share of the optimizer", kMixed, optimizer / total, "", 0.75},
           {"in all, as Accordion stores it",
            "fp32 weight, gradient and moments",
            planned_bytes(stored_fp32, OptimizerType::AdamW), "bytes"},
           {"in all, moments in bf16", "fp32 weight and gradient",
            planned_bytes(stored_fp32, OptimizerType::AdamWBf16), "bytes"},
           {"in all, moments in 8 bits", "fp32 weight and gradient",
            planned_bytes(stored_fp32, OptimizerType::AdamW8bit), "bytes"},
           {"in all, SGD without momentum", "fp32 weight and gradient",
            planned_bytes(stored_fp32, OptimizerType::Sgd), "bytes"}},
      .conclusions = {
          "A master copy beside bf16 weights and fp32 weights that are cast "
          "when they are gathered come to the same 16 bytes.",
          "Keys: parameter_bytes, master_copy, gradient_bytes, optimizer."}};
}

Explanation explain_zero() {
  const double params = 7.5e9;
  const auto held = [&](Sharding sharding, int ranks) {
    return zero_paper_bytes(params, ranks, sharding) / 1e9;
  };
  const auto reduction = [&](Sharding sharding, int ranks) {
    return held(Sharding::NoShard, ranks) / held(sharding, ranks);
  };
  constexpr int kMany = 1'000'000;
  return {
      .name = {},
      .title = "The three stages of ZeRO: what is cut, what it saves",
      .source =
          "Rajbhandari et al. 2020, arXiv:1910.02054, figure 1 and table "
          "1; \"Fully Sharded Data Parallel (FSDP)\", a handbook's "
          "chapter",
      .figures = {{"no sharding, 7.5B", kFull, held(Sharding::NoShard, 64),
                   "GB", 120},
                  {"ZeRO-1 over 64", "4 + 12/N bytes",
                   held(Sharding::ShardOptimizer, 64), "GB", 31.4},
                  {"ZeRO-2 over 64 (DeepSpeed)", "2 + 14/N bytes",
                   held(Sharding::DeepSpeedZero2, 64), "GB", 16.6},
                  {"ZeRO-2 over 64 (FSDP2), between steps", "16/N bytes",
                   held(Sharding::ShardGradOp, 64), "GB"},
                  {"ZeRO-3 over 64", "16/N bytes",
                   held(Sharding::FullShard, 64), "GB", 1.88},
                  {"ZeRO-1 saves, many ranks", "times",
                   reduction(Sharding::ShardOptimizer, kMany), "x", 4},
                  {"ZeRO-2 saves, many ranks", "times",
                   reduction(Sharding::DeepSpeedZero2, kMany), "x", 8},
                  {"ZeRO-3 saves, 64 ranks", "times (N)",
                   reduction(Sharding::FullShard, 64), "x", 64}},
      .conclusions = {
          "FSDP2's shard_grad_op cuts parameters too and keeps them whole from "
          "forward to backward only; DeepSpeed's stage 2 keeps a whole 16-bit "
          "copy at all times.",
          "Stages 1 and 2 send as much as an all-reduce, stage 3 half as much "
          "again: `--explain communication`."}};
}

Explanation explain_1b() {
  const double params = 1e9;
  const double whole = gigabytes(params, 16);
  const double cut = gigabytes(params, 16, 8);
  return {.name = {},
          .title = "1 billion parameters over 8 devices",
          .source = kJaxNotes,
          .figures = {{"model", kWeights, gigabytes(params, 4), "GB", 4},
                      {"replicated, a device",
                       "4 + 4 + 8 bytes: weights, gradients, Adam", whole, "GB",
                       16},
                      {"replicated, 8 devices", kFull, 8 * whole, "GB", 128},
                      {"sharded, a device", kFull, cut, "GB", 2},
                      {"saved", "share", 1.0 - cut / whole, "", 0.875},
                      {"larger model", "times", whole / cut, "x", 8}},
          .conclusions = {
              "All state in fp32 and a master copy beside 16-bit weights both "
              "come to 16 bytes. Activations and the gathered unit are not in "
              "these numbers."}};
}

Explanation explain_10b() {
  Explanation explanation = {
      .name = {},
      .title = "10 billion parameters on 8 A100 of 40 GB",
      .source = kJaxNotes,
      .figures = {},
      .conclusions = {
          kWeightsAreNotAll,
          "20 GB a device fit in 40 GB and leave half for activations; 160 GB "
          "fit no device."}};
  add_both(explanation, "without sharding, a device", 10e9, 1, 40);
  add_both(explanation, "over 8 devices", 10e9, 8, 5);
  return explanation;
}

Explanation explain_llama_65b() {
  Explanation explanation = {
      .name = {},
      .title = "LLaMA-65B: 64 and 2,048 devices",
      .source = kJaxNotes,
      .figures = {},
      .conclusions = {
          kWeightsAreNotAll,
          "On 64 devices 16.3 GB a device fit an A100 of 40 GB, with 24 GB for "
          "activations and gathered layers, which the source leaves out.",
          "Touvron et al. 2023, arXiv:2302.13971, describe model and sequence "
          "parallelism with recomputation for this model; that it was trained "
          "with FSDP is the source's claim."}};
  add_both(explanation, "without sharding, a device", 65e9, 1, 260);
  add_both(explanation, "over 64 devices", 65e9, 64, 4);
  add_both(explanation, "over 2,048 devices", 65e9, 2048, 0.13);
  return explanation;
}

Explanation explain_gpt3() {
  Explanation explanation = {.name = {},
                             .title = "GPT-3, 175 billion parameters",
                             .source = kJaxNotes,
                             .figures = {},
                             .conclusions = {kWeightsAreNotAll}};
  add_both(explanation, "without sharding, a device", 175e9, 1, 700);
  add_both(explanation, "over 1,024 devices", 175e9, 1024, 0.68);
  return explanation;
}

}  // namespace accordion::plan::detail
