// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/accelerate_config.h"

#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"
#include "accordion/plan/question/flat_yaml.h"
#include "accordion/plan/text_file.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

/// Names of the keys: huggingface/accelerate, docs/source/package_reference and
/// huggingface/transformers, TrainingArguments.
class AccelerateReader {
 public:
  AccelerateReader(const json& settings, const std::string& prefix)
      : values_(settings, prefix) {}

  LauncherConfig read() {
    read_precision();
    read_strategy();
    read_zero();
    read_prefetch();
    read_memory();
    read_batch();
    read_optimizer();
    const std::vector<std::string> unread = values_.notes();
    config_.notes.insert(config_.notes.end(), unread.begin(), unread.end());
    return std::move(config_);
  }

 private:
  /// accelerate writes fsdp_ before each key, the Trainer does not.
  template <typename Take>
  auto either(const std::string& key, const Take& take) {
    auto value = take("fsdp_config.fsdp_" + key);
    auto plain = take("fsdp_config." + key);
    return value ? value : plain;
  }
  bool fsdp_flag(const std::string& key) {
    return either(
               key,
               [&](const std::string& path) { return values_.take_bool(path); })
        .value_or(false);
  }

  /// Parameters stay in fp32; gathers and reductions are in the type of
  /// computation.
  void read_precision() {
    const auto mixed =
        values_.take_choice("mixed_precision", {"no", "fp16", "bf16", "fp8"});
    const bool bf16 = values_.take_bool("bf16").value_or(false);
    const bool fp16 = values_.take_bool("fp16").value_or(false);
    static constexpr const char* kTypes[] = {"fp32", "fp16", "bf16", "fp8"};
    const std::size_t type = mixed ? *mixed : bf16 ? 2 : fp16 ? 1 : 0;
    config_.set("compute", kTypes[type]);
    config_.set("gather_bytes", type == 0 ? 4 : 2);
    config_.set("reduce_bytes", type == 0 ? 4 : 2);
  }

  /// The flags of the Trainer's "fsdp": "full_shard auto_wrap offload".
  void read_fsdp_flags() {
    const auto flags = values_.take("fsdp");
    if (!flags || !flags->is_string()) {
      return;
    }
    std::istringstream words(flags->get<std::string>());
    for (std::string word; words >> word;) {
      if (word == "offload") {
        offload_ = true;
      } else if (word == "auto_wrap") {
        continue;  // layers are units here always
      } else {
        strategy_ = word;
      }
    }
  }

  void read_strategy() {
    read_fsdp_flags();
    for (const char* const key :
         {"sharding_strategy", "reshard_after_forward"}) {
      const auto value = either(
          key, [&](const std::string& path) { return values_.take(path); });
      if (!value) {
        continue;
      }
      if (value->is_boolean()) {
        strategy_ = value->get<bool>() ? "full_shard" : "shard_grad_op";
      } else if (value->is_number_integer()) {
        static constexpr const char* kNumbers[] = {
            "full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
            "hybrid_shard_zero2"};
        const auto number = value->get<std::int64_t>();
        if (number < 1 || number > 5) {
          values_.fail(fmt::format(
              "'{}' is {}, but must be from 1 to 5; the nearest is {}.", key,
              number, number < 1 ? 1 : 5));
        }
        strategy_ = kNumbers[number - 1];
      } else if (value->is_string()) {
        strategy_ = value->get<std::string>();
      }
    }
    set_strategy();
    const auto version = either("version", [&](const std::string& path) {
      return values_.take_count(path);
    });
    config_.set("stack", version.value_or(1) == 2 ? "torchtitan" : "fms-fsdp");
  }

  void set_strategy() {
    if (strategy_.empty()) {
      return;
    }
    static constexpr std::string_view kNames[] = {"full_shard", "shard_grad_op",
                                                  "no_shard", "hybrid_shard",
                                                  "hybrid_shard_zero2"};
    const std::string name = normalized(strategy_);
    for (const std::string_view each : kNames) {
      if (normalized(each) != name) {
        continue;
      }
      if (each == "hybrid_shard_zero2") {
        values_.fail(
            "'hybrid_shard_zero2' has no mesh here; say strategy=shard_grad_op "
            "with dp_shard and dp_replicate instead.");
      }
      config_.set("strategy", each == "hybrid_shard" ? "hybrid" : each);
      return;
    }
    values_.fail(fmt::format(
        "The sharding strategy is '{}', but must be one of {}; the nearest is "
        "'{}'.",
        strategy_, fmt::join(kNames, ", "), nearest_name(strategy_, kNames)));
  }

  /// accelerate's few keys for DeepSpeed; a ds_config.json says more.
  void read_zero() {
    const auto stage = values_.take_count("deepspeed_config.zero_stage");
    if (!stage) {
      return;
    }
    if (*stage > 3) {
      values_.fail(
          fmt::format("'deepspeed_config.zero_stage' is {}, but must "
                      "be 0, 1, 2 or 3; the nearest is 3.",
                      *stage));
    }
    static constexpr const char* kStrategies[] = {
        "no_shard", "shard_optimizer", "deepspeed_zero2", "full_shard"};
    config_.set("strategy", kStrategies[*stage]);
    config_.set("stack", "deepspeed");
    config_.set("parameter_bytes", 2);
    config_.set("master_copy", true);
    config_.set("gradient_bytes", 2);
    static constexpr const char* kPlaces[] = {"none", "host", "disk"};
    for (const auto& [theirs, ours] :
         {std::pair{"offload_optimizer_device", "offload.optimizer"},
          std::pair{"offload_param_device", "offload.parameters"}}) {
      const auto place = values_.take_choice(
          std::string("deepspeed_config.") + theirs, {"none", "cpu", "nvme"});
      if (place) {
        config_.set(ours, kPlaces[*place]);
      }
    }
  }

  void read_prefetch() {
    fsdp_flag("forward_prefetch");  // the host runs ahead without it too
    const auto order = either(
        "backward_prefetch",
        [&](const std::string& path) { return values_.take_text(path); });
    if (order && normalized(*order).starts_with("no")) {
      config_.set("prefetch", 0);
    }
  }

  void read_memory() {
    if (fsdp_flag("offload_params") || offload_) {
      config_.set("offload.parameters", "host");
      config_.set("offload.optimizer", "host");
    }
    if (fsdp_flag("activation_checkpointing") ||
        values_.take_bool("gradient_checkpointing").value_or(false)) {
      config_.set("checkpointing", "full");
    }
  }

  void read_batch() {
    if (const auto micro = values_.take_count("per_device_train_batch_size")) {
      config_.set("micro_batch", *micro);
    }
    for (const char* const path :
         {"gradient_accumulation_steps",
          "deepspeed_config.gradient_accumulation_steps"}) {
      if (const auto steps = values_.take_count(path)) {
        config_.set("grad_accum", *steps);
      }
    }
  }

  void read_optimizer() {
    const auto name = values_.take_text("optim");
    if (!name) {
      return;
    }
    const bool eight = name->find("8bit") != std::string::npos;
    if (name->starts_with("adam")) {
      config_.set("optimizer", eight ? "adamw_8bit" : "adamw");
    } else if (*name == "sgd") {
      config_.set("optimizer", "sgd");
    } else {
      config_.notes.push_back(
          fmt::format("[accelerate] The state of optimizer '{}' is not known: "
                      "taken to be AdamW's.",
                      *name));
    }
  }

  LauncherValues values_;
  std::string strategy_;
  bool offload_ = false;
  LauncherConfig config_;
};

}  // namespace

LauncherConfig accelerate_config(std::string_view text,
                                 std::string_view source) {
  const std::string prefix = fmt::format("[accelerate] {}: ", source);
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  const json settings = is_json ? json::parse(text, nullptr, false)
                                : parse_flat_yaml(text, source);
  if (settings.is_discarded()) {
    throw std::invalid_argument(prefix + "The file is neither JSON nor YAML.");
  }
  return AccelerateReader(settings, prefix).read();
}

LauncherConfig accelerate_config_from_file(const std::string& path) {
  return accelerate_config(read_text(path, "[plan]"), path);
}

}  // namespace accordion::plan
