// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "accordion/train/config_fault.h"
#include "accordion/train/train_config.h"

namespace accordion {
namespace {

using detail::Fault;

void check_required(const TrainConfig& config, const Fault& fault) {
  bool no_path = config.data.path.empty();
  for (const std::string& path : config.data.path) {
    no_path = no_path || path.empty();
  }
  fault.raise_if(no_path, "'data.path' is not set. Name the data to train on.");
  fault.raise_if(config.model.config.empty(),
                 "'model.config' is not set. Name a Hugging Face config.json.");
}

void check_length(const TrainConfig& config, const Fault& fault) {
  const auto& train = config.train;
  fault.raise_if(train.steps == 0 && train.epochs == 0 && train.seconds == 0,
                 "'train.steps', 'train.epochs' and 'train.seconds' are all "
                 "0, so that training would not end. Set one of them.");
  fault.raise_if(
      train.steps > 0 && train.epochs > 0,
      fmt::format("'train.steps' is {} and 'train.epochs' is {}, but only one "
                  "can say how long the run is. Set one of them to 0.",
                  train.steps, train.epochs));
}

void check_schedule(const TrainConfig& config, const Fault& fault) {
  const auto& schedule = config.schedule;
  const std::int64_t steps = config.train.steps;
  fault.raise_if(
      steps > 0 && schedule.warmup_steps > steps,
      fmt::format("'schedule.warmup_steps' is {}, more than 'train.steps' "
                  "({}).",
                  schedule.warmup_steps, steps));
  fault.raise_if(
      schedule.name != "wsd" &&
          (schedule.decay_steps > 0 || schedule.decay_shape != "linear"),
      fmt::format("'schedule.decay_steps' and 'schedule.decay_shape' belong to "
                  "schedule.name = \"wsd\", but that is \"{}\".",
                  schedule.name));
  fault.raise_if(
      schedule.decay_steps > 0 && steps == 0 && config.train.epochs == 0,
      "'schedule.decay_steps' counts from the last step, but only time ends "
      "this run. Set train.steps, or schedule.decay_steps = 0.");
  fault.raise_if(
      steps > 0 && schedule.warmup_steps + schedule.decay_steps > steps,
      fmt::format("'schedule.warmup_steps' ({}) and 'schedule.decay_steps' "
                  "({}) are more than 'train.steps' ({}) together.",
                  schedule.warmup_steps, schedule.decay_steps, steps));
}

void check_optimizer(const TrainConfig& config, const Fault& fault) {
  const auto& optimizer = config.optimizer;
  fault.raise_if(
      optimizer.stochastic_rounding && optimizer.moments_dtype != "bf16",
      fmt::format("'optimizer.stochastic_rounding' is true, but nothing that "
                  "the optimizer stores is bf16: 'optimizer.moments_dtype' is "
                  "\"{}\". Set it to \"bf16\", or leave rounding false.",
                  optimizer.moments_dtype));
}

void check_evaluation(const TrainConfig& config, const Fault& fault) {
  fault.raise_if(config.eval.every > 0 && config.data.order == "strided",
                 "'data.order' is \"strided\", which holds nothing out, but "
                 "'eval.every' is set. Use \"shuffled\", or eval.every = 0.");
  fault.raise_if(
      config.eval.every > 0 && config.data.validation_fraction == 0,
      "'eval.every' is set, but 'data.validation_fraction' is 0, so that "
      "nothing is held out. Set both or neither.");
}

void check_sharding(const TrainConfig& config, const Fault& fault) {
  const auto& fsdp = config.fsdp;
  const bool reshards =
      fsdp.strategy == "full_shard" || fsdp.strategy == "hybrid";
  fault.raise_if(
      fsdp.reshard_to_ranks > 0 && !reshards,
      fmt::format("'fsdp.reshard_to_ranks' is {}, but fsdp.strategy = \"{}\" "
                  "keeps parameters whole from forward to backward. Use "
                  "\"full_shard\" or \"hybrid\", or leave it 0.",
                  fsdp.reshard_to_ranks, fsdp.strategy));
  fault.raise_if(
      fsdp.reshard_to_ranks > 0 && fsdp.reshard_after_forward == false,
      fmt::format("'fsdp.reshard_to_ranks' is {}, but "
                  "'fsdp.reshard_after_forward' is false, so that nothing is "
                  "resharded. Set one of them only.",
                  fsdp.reshard_to_ranks));
  fault.raise_if(
      fsdp.replicas > 1 && fsdp.strategy == "no_shard",
      fmt::format("'fsdp.replicas' is {}, but fsdp.strategy = \"no_shard\" "
                  "makes every rank a replica. Leave it 0.",
                  fsdp.replicas));
  fault.raise_if(
      fsdp.accumulation == "deferred_all_reduce" &&
          (fsdp.replicas == 1 ||
           (fsdp.replicas == 0 && fsdp.strategy != "hybrid")),
      "'fsdp.accumulation' is \"deferred_all_reduce\", but there is one "
      "replica "
      "only, and nothing to put off. Set fsdp.replicas, or fsdp.strategy = "
      "\"hybrid\".");
}

void check_loss_scale(const TrainConfig& config, const Fault& fault) {
  const auto& optimizer = config.optimizer;
  const auto& fsdp = config.fsdp;
  const bool is_default =
      optimizer.loss_scale == TrainConfig().optimizer.loss_scale &&
      optimizer.loss_scale_interval ==
          TrainConfig().optimizer.loss_scale_interval;
  fault.raise_if(
      fsdp.param_dtype != "fp16" && !is_default,
      fmt::format("'optimizer.loss_scale' and 'optimizer.loss_scale_interval' "
                  "belong to fsdp.param_dtype = \"fp16\", but that is \"{}\".",
                  fsdp.param_dtype));
  fault.raise_if(
      fsdp.param_dtype != "fp16" && fsdp.reduce_dtype == "fp16",
      fmt::format("'fsdp.reduce_dtype' is \"fp16\", where gradients vanish "
                  "without a loss scale, which fsdp.param_dtype = \"{}\" has "
                  "not. Use \"bf16\" or \"fp32\".",
                  fsdp.param_dtype));
  int exponent = 0;
  const bool is_power = std::frexp(optimizer.loss_scale, &exponent) == 0.5;
  fault.raise_if(
      !is_power,
      fmt::format("'optimizer.loss_scale' is {}, which is no power of two, so "
                  "that gradients would be rounded. Use {} or {}.",
                  optimizer.loss_scale, std::ldexp(1.0, exponent - 1),
                  std::ldexp(1.0, exponent)));
}

/// What goes by way of the host's memory, or measures it.
void check_device(const TrainConfig& config, const Fault& fault) {
  if (config.train.device != "cuda") {
    return;
  }
  fault.raise_if(config.fsdp.backend != "auto",
                 fmt::format("'train.device' is \"cuda\", whose devices NCCL "
                             "joins, but 'fsdp.backend' is \"{}\". Leave it "
                             "\"auto\".",
                             config.fsdp.backend));
  fault.raise_if(config.memory.offload_activations,
                 "'train.device' is \"cuda\", from which activations are not "
                 "offloaded. Set memory.offload_activations = false.");
  fault.raise_if(
      config.memory.offload != "none" &&
          (config.memory.offload != "parameters" ||
           config.memory.offload_to != "host"),
      fmt::format("'train.device' is \"cuda\", from which 'memory.offload' "
                  "moves parameters, gradients and moments together, to the "
                  "host, but it is \"{}\", to \"{}\". Set memory.offload = "
                  "\"parameters\" and memory.offload_to = \"host\", or "
                  "memory.offload = \"none\".",
                  config.memory.offload, config.memory.offload_to));
  fault.raise_if(
      config.memory.offload != "none" && config.memory.optimizer_in_backward,
      "'memory.optimizer_in_backward' steps layers on the device, but "
      "'memory.offload' has their parameters on the host. Turn one off.");
  fault.raise_if(!config.memory.limit.empty(),
                 "'train.device' is \"cuda\", but 'memory.limit' bounds the "
                 "memory of the host. Leave it empty.");
  fault.raise_if(config.optimizer.moments_dtype != "fp32",
                 fmt::format("'train.device' is \"cuda\", where moments are "
                             "stored as parameters are, but "
                             "'optimizer.moments_dtype' is \"{}\". Use "
                             "\"fp32\".",
                             config.optimizer.moments_dtype));
}

void check_rollback(const TrainConfig& config, const Fault& fault) {
  const bool rolls_back =
      config.train.nonfinite == "rollback" || config.train.spike == "rollback";
  fault.raise_if(
      rolls_back && config.checkpoint.every == 0,
      "'train.nonfinite' or 'train.spike' is \"rollback\", but "
      "'checkpoint.every' is 0, so that there is nothing to go back to. Set "
      "checkpoint.every.");
}

}  // namespace

void validate_config(const TrainConfig& config, const std::string& place) {
  const Fault fault(place);
  check_required(config, fault);
  check_length(config, fault);
  check_optimizer(config, fault);
  check_schedule(config, fault);
  check_sharding(config, fault);
  check_loss_scale(config, fault);
  detail::check_memory_keys(config, fault);
  check_device(config, fault);
  check_evaluation(config, fault);
  check_rollback(config, fault);
}

}  // namespace accordion
