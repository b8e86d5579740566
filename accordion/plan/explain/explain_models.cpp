// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "accordion/plan/activation_memory.h"
#include "accordion/plan/explain/explanations.h"
#include "accordion/plan/known_models.h"
#include "accordion/plan/search/advice.h"

namespace accordion::plan::detail {
namespace {

constexpr const char* kFull = "16 bytes a parameter";
constexpr const char* kFsdp2Course =
    "\"PyTorch FSDP2: The Modern Standard\", course notes";

PlanQuestion llama_70b(const char* cluster,
                       const std::vector<std::string>& keys) {
  PlanQuestion question;
  question.model = *known_model("llama-2-70b");
  question.cluster = parse_cluster(cluster);
  for (const std::string& key : keys) {
    state_key(key, question);
  }
  return question;
}

std::string fits_words(const PlanQuestion& question) {
  const PlanRequest request = resolved(question);
  const Plan plan = make_plan(request);
  return fmt::format("the planner: {:.1f} of {:.1f} GB a GPU, {}",
                     plan.memory.reserved_bytes / 1e9,
                     request.cluster.gpu.memory_bytes / 1e9,
                     plan.fits ? "fits" : "does not fit");
}

double planned_gb(const PlanQuestion& question) {
  return make_plan(resolved(question)).memory.reserved_bytes / 1e9;
}

}  // namespace

Explanation explain_llama_70b() {
  const double params = 70e9;
  const char* const twelve = "12 bytes a parameter";
  const std::vector<std::string> keys = {"seq_len=4096", "checkpointing=full"};
  const PlanQuestion eight = llama_70b("8xH100", keys);
  const PlanQuestion sixteen = llama_70b("2x8xH100-IB", keys);
  const char* const whole = "all: activations, gathered layers, allocator";
  return {
      .name = {},
      .title = "Llama 70B on 1, 8 and 16 H100 of 80 GB",
      .source = "\"FSDP\", the chapter behind DDP of a course",
      .figures =
          {{"1 GPU", twelve, gigabytes(params, 12), "GB", 840},
           {"1 GPU", kFull, gigabytes(params, 16), "GB"},
           {"8 GPUs with DDP, each", twelve, gigabytes(params, 12), "GB", 840},
           {"8 GPUs with FSDP, each", twelve, gigabytes(params, 12, 8), "GB",
            105},
           {"8 GPUs with FSDP, each", kFull, gigabytes(params, 16, 8), "GB"},
           {"8 GPUs, 4,096 tokens each", whole, planned_gb(eight), "GB"},
           {"16 GPUs with FSDP, each", twelve, gigabytes(params, 12, 16), "GB",
            52.5},
           {"16 GPUs with FSDP, each", kFull, gigabytes(params, 16, 16), "GB"},
           {"16 GPUs, 4,096 tokens each", whole, planned_gb(sixteen), "GB"}},
      .conclusions = {
          "The source's verdicts hold for its 12 bytes: 8 GPUs are not "
          "enough, 16 are. 12 bytes leave out either the gradient and the "
          "16-bit weight or a master copy.",
          "With 16 bytes the state alone takes 70 GB on 16 GPUs.",
          "On 8: " + fits_words(eight) + ". On 16: " + fits_words(sixteen) +
              " (one sequence of 4,096 tokens, layers checkpointed)."}};
}

Explanation explain_70b_on_a100() {
  const double params = 70e9;
  const double state = gigabytes(params, 2.0 * 5.0, 8);
  const std::vector<std::string> keys = {"seq_len=2048", "micro_batch=2",
                                         "checkpointing=full"};
  const PlanQuestion question = llama_70b("8xA100-80GB", keys);
  const PlanRequest request = resolved(question);
  const Plan plan = make_plan(request);
  Explanation explanation = {
      .name = {},
      .title = "70B on 8 A100 of 80 GB: it does not fit, and what makes it fit",
      .source = kFsdp2Course,
      .figures = {{"state, a GPU", "70B / 8 * 2 bytes * 5", state, "GB", 87.5},
                  {"activations, batch 16 of 2,048 tokens",
                   "as the source puts it", 20, "GB", 20},
                  {"buffers", "as the source puts it", 5, "GB", 5},
                  {"in all", "the source's", state + 20 + 5, "GB", 112.5},
                  {"in all with batch 8", "the source's remedy", state + 10 + 5,
                   "GB"},
                  {"state, a GPU", kFull, gigabytes(params, 16, 8), "GB"},
                  {"activations, batch 16, 2 a GPU", "the inputs of 80 layers",
                   saved_by_layer(request) *
                       static_cast<double>(request.model.num_layers) / 1e9,
                   "GB"},
                  {"in all", "the planner, Llama 2 70B",
                   plan.memory.reserved_bytes / 1e9, "GB"}},
      .conclusions = {
          "Under the source's own accounting half the batch leaves 102.5 GB, "
          "still more than 80: activations are not what is too large. Five "
          "times 2 bytes are 10 a parameter; Adam in mixed precision holds 16.",
          fmt::format("Of the planner's {:.1f} GB a GPU, {:.1f} are state; "
                      "the device has {:.1f}.",
                      plan.memory.reserved_bytes / 1e9,
                      state_memory(request).total() / 1e9,
                      request.cluster.gpu.memory_bytes / 1e9)}};
  for (const Advice& advice : worthwhile_changes(question, request, plan)) {
    const ChangedPlan& changed = advice.changed;
    explanation.conclusions.push_back(fmt::format(
        "It fits with {}: {:.1f} GB a GPU, {:.0f} tokens/s a GPU ({}).",
        changed.request.cluster.num_gpus() > 8
            ? fmt::format("{} GPUs", changed.request.cluster.num_gpus())
            : fmt::format("{}", fmt::join(changed.change.keys, " ")),
        changed.plan.memory.reserved_bytes / 1e9,
        changed.plan.tokens_per_s_per_gpu, changed.change.why));
  }
  return explanation;
}

Explanation explain_units() {
  const PlanQuestion question =
      llama_70b("8xH100", {"seq_len=2048", "checkpointing=full"});
  const PlanRequest request = resolved(question);
  const double layer = static_cast<double>(request.model.layer_params()) / 1e9;
  const double units =
      make_plan(request).memory.highest().unsharded_parameters /
      request.training.precision.gather_bytes / 1e9;
  return {
      .name = {},
      .title = "What a rank holds: its piece, and the units that are whole",
      .source = kFsdp2Course,
      .figures =
          {{"parameters of 70B over 8", "pieces alone", 70.0 / 8, "billion", 9},
           {"with one layer of 3B whole", "pieces and a layer", 70.0 / 8 + 3.0,
            "billion", 12},
           {"a layer of Llama 2 70B", "its shape", layer, "billion"},
           {"whole at the peak, prefetch 1",
            "the planner: embedding, head, layers in flight", units, "billion"},
           {"a model of 10 GB on 8 GPUs", "replicated", 8 * 10, "GB", 80}},
      .conclusions = {
          "A unit of a layer is the usual choice. Gathering ahead holds one "
          "unit more for each of `prefetch`, and the root (embedding, norm, "
          "head) stays whole from forward to backward."}};
}

Explanation explain_checkpointing() {
  PlanQuestion question;
  question.model = *known_model("llama-2-7b");
  question.cluster = parse_cluster("8xH100");
  for (const char* const key : {"seq_len=2048", "micro_batch=32"}) {
    state_key(key, question);
  }
  PlanRequest request = resolved(question);
  const auto kept = [&](Checkpointing mode) {
    request.training.checkpointing = mode;
    return saved_by_layer(request) *
           static_cast<double>(request.model.num_layers) / 1e9;
  };
  request.training.checkpointing = Checkpointing::Full;
  const TimePlan time = make_plan(request).time;
  const double again =
      time.recompute_s / (time.forward_s + time.backward_s - time.recompute_s);
  return {
      .name = {},
      .title =
          "Activation checkpointing: 32 layers of 4,096, 32 sequences "
          "of 2,048 tokens on a GPU",
      .source = kFsdp2Course,
      .figures = {{"more computation", "forward twice: 4 parts for 3",
                   4.0 / 3.0 - 1.0, "", 0.33},
                  {"more computation", "the planner, layers alone", again, ""},
                  {"kept without", "the planner, Llama 2 7B",
                   kept(Checkpointing::None), "GB"},
                  {"kept, selective", "the planner",
                   kept(Checkpointing::Selective), "GB"},
                  {"kept, the layers' inputs", "the planner",
                   kept(Checkpointing::Full), "GB"},
                  {"kept, the layers' inputs",
                   "32 * 32 * 2,048 * 4,096 * 2 bytes",
                   32.0 * 32 * 2048 * 4096 * 2 / 1e9, "GB"}},
      .conclusions = {
          "The source puts about 50 GB without and 1.5 GB with "
          "checkpointing; neither follows from these sizes: the inputs of "
          "the layers alone are 17.2 GB.",
          "Key: checkpointing=none, selective or full; checkpointed_share "
          "for a part of the layers."}};
}

}  // namespace accordion::plan::detail
