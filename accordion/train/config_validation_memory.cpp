// SPDX-License-Identifier: BSD-3-Clause
// What the keys of [memory] mean, and what they do not go with.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "accordion/train/config_fault.h"
#include "accordion/train/train_config.h"

namespace accordion {
namespace {

using detail::Fault;

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr std::array<ByteUnit, 5> kByteUnits = {{
    {"", 1 << 20},
    {"KiB", 1 << 10},
    {"MiB", 1 << 20},
    {"GiB", 1 << 30},
    {"TiB", 1LL << 40},
}};

void check_memory(const TrainConfig& config, const Fault& fault) {
  const std::string& value = config.memory.activation_checkpointing;
  fault.raise_if(
      !checkpointed_every(value),
      fmt::format("'memory.activation_checkpointing' is \"{}\"; valid values: "
                  "\"none\", \"selective\", \"full\", \"auto\", or a number of "
                  "layers, such as \"2\" for every second one.",
                  value));
  fault.raise_if(
      !bytes_of_limit(config.memory.limit),
      fmt::format("'memory.limit' is \"{}\", which is no amount of memory; "
                  "valid values: \"8GiB\", \"800MiB\", a number of MiB such as "
                  "\"800\", or \"\" for no limit.",
                  config.memory.limit));
  fault.raise_if(value == "auto" && config.memory.limit.empty(),
                 "'memory.activation_checkpointing' is \"auto\", which is "
                 "chosen by memory.limit, but there is none. Set it.");
}

void check_offload(const TrainConfig& config, const Fault& fault) {
  const auto& memory = config.memory;
  const std::string& layers = memory.activation_checkpointing;
  fault.raise_if(
      memory.offload_activations && checkpointed_every(layers).value_or(0) == 0,
      fmt::format(
          "'memory.offload_activations' moves the inputs of layers that "
          "keep nothing else, but memory.activation_checkpointing = "
          "\"{}\" has none. Use \"full\", or a number of layers.",
          layers));
  if (memory.offload == "none") {
    fault.raise_if(
        memory.offload_to != "nvme" && !memory.offload_activations,
        "'memory.offload_to' belongs to memory.offload, which is \"none\", and "
        "to memory.offload_activations, which is off.");
  }
  if (memory.offload == "none" && !memory.offload_activations) {
    return;
  }
  fault.raise_if(
      memory.offload_to == "host" && config.train.device == "cpu",
      "'memory.offload_to' is \"host\", but this run is on the CPU, whose "
      "memory that is: nothing would be saved. Use \"nvme\", or name a folder "
      "on a fast disk.");
  fault.raise_if(
      memory.offload == "gradients" && memory.optimizer_in_backward,
      "'memory.offload' is \"gradients\", but with "
      "memory.optimizer_in_backward each is gone once its layer is stepped, so "
      "that none is left to offload. Use \"optimizer\" or \"parameters\", or "
      "leave memory.optimizer_in_backward off.");
  fault.raise_if(
      config.checkpoint.async && config.checkpoint.every > 0 &&
          memory.offload != "none",
      "'checkpoint.async' copies what it saves to memory, also what "
      "'memory.offload' keeps out of it. Set checkpoint.async = false.");
}

void check_step_in_backward(const TrainConfig& config, const Fault& fault) {
  if (!config.memory.optimizer_in_backward) {
    fault.raise_if(config.optimizer.clip_in_backward != "previous_norm",
                   "'optimizer.clip_in_backward' belongs to "
                   "memory.optimizer_in_backward, which is off.");
    return;
  }
  fault.raise_if(
      config.train.grad_accumulation > 1,
      fmt::format("'memory.optimizer_in_backward' is on, but "
                  "'train.grad_accumulation' is {}: the sum over microbatches "
                  "has to be kept until the last, so nothing would be saved. "
                  "Leave one of them out.",
                  config.train.grad_accumulation));
  fault.raise_if(
      config.fsdp.param_dtype == "fp16",
      "'memory.optimizer_in_backward' is on, but fsdp.param_dtype = \"fp16\" "
      "looks at the gradients of a whole step for overflows before it takes "
      "it. Use \"bf16\".");
  fault.raise_if(
      config.train.spike == "skip",
      "'train.spike' is \"skip\", but with memory.optimizer_in_backward a "
      "step is taken before its loss is compared. Use \"rollback\".");
}

}  // namespace

std::optional<std::int64_t> checkpointed_every(const std::string& value) {
  if (value == "none" || value == "selective" || value == "auto" ||
      value == "full") {
    return value == "full" ? 1 : 0;
  }
  std::int64_t every = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, every);
  const bool is_number = error == std::errc() && stop == end && every > 0;
  return is_number ? std::optional(every) : std::nullopt;
}

std::optional<std::int64_t> bytes_of_limit(std::string_view value) {
  if (value.empty()) {
    return 0;
  }
  double amount = 0.0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, amount);
  std::string_view unit(stop, end);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  if (error != std::errc() || !(amount > 0)) {
    return std::nullopt;
  }
  const auto known = std::ranges::find(kByteUnits, unit, &ByteUnit::name);
  const double bytes = known == kByteUnits.end() ? 0.0 : amount * known->bytes;
  constexpr double kMost = 1LL << 60;
  return bytes >= 1 && bytes <= kMost
             ? std::optional(static_cast<std::int64_t>(bytes))
             : std::nullopt;
}

void detail::check_memory_keys(const TrainConfig& config, const Fault& fault) {
  check_memory(config, fault);
  check_offload(config, fault);
  check_step_in_backward(config, fault);
}

}  // namespace accordion
