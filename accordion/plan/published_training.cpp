// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/published_training.h"

#include <algorithm>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {

using nlohmann::json;

namespace detail {

std::string text_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string()
             ? normalized(found->get<std::string>())
             : "";
}

int count_of(const json& object, const char* key, int otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number()
             ? static_cast<int>(found->get<double>())
             : otherwise;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace detail

namespace {

using detail::contains;
using detail::count_of;
using detail::text_of;

[[noreturn]] void fail(const std::string& why) {
  throw std::invalid_argument(why);
}

Precision precision_of(const json& row, const SoftwareStack& stack) {
  const std::string text = text_of(row, "precision");
  Precision precision;
  if (contains(text, "float8") || contains(text, "fp8")) {
    precision.compute = ComputeType::Fp8;
    precision.gather_bytes = contains(text, "float8-all-gather") ? 1 : 2;
  } else if (contains(text, "fp16")) {
    precision.compute = ComputeType::Fp16;
  }
  if (stack.name == "megatron" || stack.name == "deepspeed") {
    precision.parameter_bytes = 2;
    precision.master_copy = true;
    precision.gradient_bytes = stack.name == "megatron" ? 4 : 2;
    precision.reduce_bytes = 2;
  } else if (contains(text, "pure") || stack.name == "fms-fsdp") {
    precision.reduce_bytes = 2;
  }
  return precision;
}

void read_checkpointing(const json& row, Training& training) {
  const std::string text = text_of(row, "act_ckpt");
  if (text.empty() || text == "none") {
    return;
  }
  if (contains(text, "every-n")) {
    // Every second block, as the source's description has it.
    training.checkpointing = Checkpointing::Full;
    training.checkpointed_share = 0.5;
  } else if (contains(text, "selective")) {
    training.checkpointing = Checkpointing::Selective;
  } else if (contains(text, "full")) {
    training.checkpointing = Checkpointing::Full;
  } else {
    fail("its activation checkpointing is '" + text + "'");
  }
}

void read_batches(const json& row, const Strategy& strategy,
                  const SoftwareStack& stack, Training& training) {
  training.seq_len = count_of(row, "seq_len", 0);
  training.micro_batch = count_of(row, "micro_batch", 0);
  training.grad_accum = count_of(row, "grad_accum", 1);
  if (training.seq_len < 1 || training.micro_batch < 1) {
    fail("the row has no sequence length or no microbatch");
  }
  // torchtitan cuts a local batch into as many microbatches as it has stages.
  if (stack.name == "torchtitan" && strategy.pipeline > 1) {
    training.grad_accum = strategy.pipeline;
    training.micro_batch =
        std::max<std::int64_t>(1, training.micro_batch / strategy.pipeline);
  }
}

/// torchtune trains in bf16 throughout and computes the loss in 8 parts. Its
/// recipes for one device besides checkpoint every layer and step an 8-bit Adam
/// in backward; its table of options begins without either.
void read_torchtune(const json& row, Training& training) {
  const std::string id = text_of(row, "id");
  if (contains(id, "baseline")) {
    fail("its sequences are not packed, and their length is not stated");
  }
  training.precision = {.parameter_bytes = 2,
                        .gather_bytes = 2,
                        .gradient_bytes = 2,
                        .reduce_bytes = 2};
  training.loss_chunks = 8;
  training.optimizer = OptimizerType::AdamWBf16;
  training.compiled = training.compiled || contains(id, "+compile");
  if (contains(id, "-full-")) {
    training.checkpointing = Checkpointing::Full;
    training.optimizer = OptimizerType::AdamW8bit;
    training.step_in_backward = true;
  }
}

}  // namespace

Training published_training(const json& row, const Strategy& strategy,
                            const SoftwareStack& stack) {
  Training training;
  read_batches(row, strategy, stack, training);
  training.precision = precision_of(row, stack);
  read_checkpointing(row, training);
  training.compiled = row.contains("compile") && row["compile"].is_boolean() &&
                      row["compile"].get<bool>();
  if (stack.name == "torchtitan" &&
      training.precision.compute == ComputeType::Fp8) {
    // Its float8 is meant for a compiler, which makes the casts.
    training.compiled = true;
  }
  if (stack.name == "torchtune") {
    read_torchtune(row, training);
  }
  return training;
}

}  // namespace accordion::plan
