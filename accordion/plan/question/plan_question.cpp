// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/plan_question.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/known_models.h"
#include "accordion/plan/model_config.h"
#include "accordion/plan/nearest_name.h"
#include "accordion/plan/question/accelerate_config.h"
#include "accordion/plan/question/deepspeed_config.h"
#include "accordion/plan/question/plan_keys.h"

namespace accordion::plan {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("[plan] " + what);
}

void apply(const LauncherConfig& config, PlanQuestion& question) {
  for (const std::string& key : config.keys) {
    state_key(key, question);
  }
  question.notes.insert(question.notes.end(), config.notes.begin(),
                        config.notes.end());
}

void read_model(const PlanInput& input, PlanQuestion& question) {
  if (input.model.empty() == (input.params == 0.0)) {
    fail(
        "Name one model: a config.json, or --params 70e9 for a Llama of that "
        "size.");
  }
  if (!input.model.empty()) {
    question.model = find_model(input.model);
    return;
  }
  ChosenShape chosen = model_for_params(input.params);
  question.model = std::move(chosen.shape);
  question.notes.push_back(std::move(chosen.rule));
}

/// What of the cluster's GPUs the axes other than data leave.
int data_gpus(const Strategy& strategy, int gpus) {
  const std::int64_t others =
      std::int64_t{strategy.tensor} * strategy.pipeline * strategy.context;
  if (gpus % others != 0) {
    const std::int64_t nearest = nearest_divisor(gpus, others);
    fail(fmt::format(
        "tensor {} * pipeline {} * context {} is {}, which does not divide the "
        "cluster's {} GPUs; the nearest valid product is {}.",
        strategy.tensor, strategy.pipeline, strategy.context, others, gpus,
        nearest));
  }
  return static_cast<int>(gpus / others);
}

/// The axis that is open takes what the stated one leaves, where that divides;
/// check() says so where it does not.
void fill_mesh(const PlanQuestion& question, Strategy& strategy) {
  if (std::min({strategy.tensor, strategy.pipeline, strategy.context}) < 1) {
    strategy.dp_shard = std::max(1, strategy.dp_shard);
    strategy.dp_replicate = std::max(1, strategy.dp_replicate);
    return;
  }
  if (strategy.dp_shard != 0 && strategy.dp_replicate != 0) {
    return;
  }
  const int data = data_gpus(strategy, question.cluster.num_gpus());
  const auto rest = [data](int stated) {
    return stated > 0 ? std::max(1, data / stated) : 1;
  };
  if (strategy.dp_shard == 0 && strategy.dp_replicate == 0) {
    const int host = std::min(
        data, std::max(1, question.cluster.gpus_per_host / strategy.tensor));
    const bool cut = question.settings.hybrid && data % host == 0;
    strategy.dp_shard = cut ? host : data;
  }
  if (strategy.dp_shard == 0) {
    strategy.dp_shard = rest(strategy.dp_replicate);
  } else {
    strategy.dp_replicate = rest(strategy.dp_shard);
  }
}

std::int64_t accumulation(const PlanRequest& request,
                          std::int64_t batch_tokens) {
  const Training& training = request.training;
  const std::int64_t pass =
      training.seq_len * training.micro_batch * request.strategy.data_ranks();
  if (pass < 1) {
    return training.grad_accum;  // check() says what is below 1
  }
  if (batch_tokens < pass || batch_tokens % pass != 0) {
    const std::int64_t whole =
        std::max<std::int64_t>(1, (batch_tokens + pass / 2) / pass);
    fail(fmt::format(
        "batch_tokens is {}, but must be a multiple of the {} tokens of one "
        "microbatch on all ranks (seq_len {} * micro_batch {} * {} data "
        "ranks); the nearest valid value is {}.",
        batch_tokens, pass, training.seq_len, training.micro_batch,
        request.strategy.data_ranks(), whole * pass));
  }
  return batch_tokens / pass;
}

}  // namespace

void state_key(const std::string& assignment, PlanQuestion& question) {
  set_key(assignment, question.settings);
  question.stated.push_back(assignment.substr(0, assignment.find('=')));
}

bool is_stated(std::string_view key, const PlanQuestion& question) {
  return std::find(question.stated.begin(), question.stated.end(), key) !=
         question.stated.end();
}

ModelShape find_model(const std::string& model) {
  if (fs::is_directory(model)) {
    return model_from_file((fs::path(model) / "config.json").string());
  }
  if (fs::exists(model) || model.ends_with(".json")) {
    return model_from_file(model);
  }
  if (const auto known = known_model(model)) {
    return *known;
  }
  const auto names = known_model_names();
  fail(fmt::format(
      "Model '{}' is neither a file nor a name that is known; the nearest is "
      "'{}'. Name a config.json, or give --params 70e9.",
      model, nearest_name(model, names)));
}

Cluster find_cluster(const std::string& cluster) {
  return cluster.ends_with(".toml") ? cluster_from_file(cluster)
                                    : parse_cluster(cluster);
}

PlanQuestion make_question(const PlanInput& input) {
  PlanQuestion question;
  read_model(input, question);
  question.cluster = find_cluster(input.cluster);
  if (!input.deepspeed.empty()) {
    apply(deepspeed_config_from_file(input.deepspeed, question.model,
                                     question.cluster.num_gpus()),
          question);
  }
  if (!input.accelerate.empty()) {
    apply(accelerate_config_from_file(input.accelerate), question);
  }
  for (const std::string& key : input.keys) {
    state_key(key, question);
  }
  return question;
}

PlanRequest resolved(const PlanQuestion& question) {
  PlanRequest request = {.model = question.model,
                         .cluster = question.cluster,
                         .strategy = question.settings.strategy,
                         .training = question.settings.training,
                         .stack = question.settings.stack};
  fill_mesh(question, request.strategy);
  if (request.training.precision.compute == ComputeType::Fp32 &&
      !is_stated("gather_bytes", question)) {
    request.training.precision.gather_bytes = 4;
  }
  if (question.settings.batch_tokens != 0) {
    request.training.grad_accum =
        accumulation(request, question.settings.batch_tokens);
  }
  return request;
}

}  // namespace accordion::plan
