// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/deepspeed_config.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "accordion/plan/text_file.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

/// Names of the keys: deepspeedai/DeepSpeed, docs/_pages/config-json.md.
class DeepSpeedReader {
 public:
  DeepSpeedReader(const json& settings, const std::string& prefix,
                  const ModelShape& model, int num_gpus)
      : values_(settings, prefix), model_(model), num_gpus_(num_gpus) {}

  LauncherConfig read() {
    config_.set("stack", "deepspeed");
    read_types();
    read_stage();
    read_offload();
    read_batch();
    read_optimizer();
    read_activations();
    const std::vector<std::string> unread = values_.notes();
    config_.notes.insert(config_.notes.end(), unread.begin(), unread.end());
    return std::move(config_);
  }

 private:
  /// 16-bit parameters and gradients and a master copy, or fp32 throughout.
  void read_types() {
    const bool fp16 = values_.take_bool("fp16.enabled").value_or(false);
    const bool bf16 = values_.take_bool("bf16.enabled").value_or(false);
    if (fp16 && bf16) {
      values_.fail("'fp16.enabled' and 'bf16.enabled' are both true.");
    }
    const bool open = values_.is_automatic("fp16.enabled") ||
                      values_.is_automatic("bf16.enabled");
    const bool half = fp16 || bf16 || open;
    config_.set("compute", fp16 ? "fp16" : half ? "bf16" : "fp32");
    config_.set("parameter_bytes", half ? 2 : 4);
    config_.set("master_copy", half);
    config_.set("gather_bytes", half ? 2 : 4);
    const auto bytes = [&](const char* path) {
      const auto type = values_.take_choice(path, {"fp32", "fp16", "bf16"});
      return type ? (*type == 0 ? 4 : 2) : (half ? 2 : 4);
    };
    config_.set("gradient_bytes", bytes("data_types.grad_accum_dtype"));
    config_.set("reduce_bytes", bytes("communication_data_type"));
  }

  void read_stage() {
    const auto stage =
        values_.take_count("zero_optimization.stage").value_or(0);
    if (stage > 3) {
      values_.fail(fmt::format(
          "'zero_optimization.stage' is {}, but must be 0, 1, 2 or 3; the "
          "nearest is 3.",
          stage));
    }
    static constexpr const char* kStrategies[] = {
        "no_shard", "shard_optimizer", "deepspeed_zero2", "full_shard"};
    config_.set("strategy", kStrategies[stage]);
    if (const auto tensor = values_.take_count("tensor_parallel.autotp_size");
        tensor && *tensor > 0) {
      tensor_ = *tensor;
      config_.set("tensor", *tensor);
    }
    if (stage != 3) {
      return;  // what follows is of stage 3, and left to the notes
    }
    if (const auto ranks =
            values_.take_count("zero_optimization.zero_hpz_partition_size");
        ranks && *ranks > 1) {
      config_.set("secondary_shard", *ranks);
    }
    read_prefetch();
  }

  void read_prefetch() {
    const auto bucket =
        values_.take_count("zero_optimization.stage3_prefetch_bucket_size");
    const bool overlap =
        values_.take_bool("zero_optimization.overlap_comm").value_or(true);
    const auto elements = static_cast<double>(bucket.value_or(50'000'000));
    const double layers = elements / static_cast<double>(model_.layer_params());
    // Parameters are prefetched one by one there: a part of a layer hides a
    // part of its gather, which one unit ahead is nearest to.
    const int units =
        overlap && elements > 0.0 ? std::max(1, static_cast<int>(layers)) : 0;
    config_.set("prefetch", units);
    if (bucket) {
      config_.notes.push_back(fmt::format(
          "[deepspeed] stage3_prefetch_bucket_size of {} elements is {:.2f} of "
          "a layer: prefetch={}.",
          *bucket, layers, units));
    }
  }

  void read_offload() {
    for (const auto& [section, older, key] :
         {std::tuple{"offload_optimizer", "cpu_offload", "offload.optimizer"},
          std::tuple{"offload_param", "cpu_offload_params",
                     "offload.parameters"}}) {
      const std::string path = std::string("zero_optimization.") + section;
      static constexpr const char* kPlaces[] = {"none", "host", "disk"};
      const auto place =
          values_.take_choice(path + ".device", {"none", "cpu", "nvme"});
      const bool moved =
          values_.take_bool(std::string("zero_optimization.") + older)
              .value_or(false);
      if (place || moved) {
        config_.set(key, kPlaces[place.value_or(1)]);
      }
    }
  }

  /// Two of the three sizes give the third.
  void read_batch() {
    const auto whole = values_.take_count("train_batch_size");
    auto micro = values_.take_count("train_micro_batch_size_per_gpu");
    auto steps = values_.take_count("gradient_accumulation_steps");
    const std::int64_t ranks = std::max<std::int64_t>(1, num_gpus_ / tensor_);
    if (whole && !micro) {
      micro = *whole / (ranks * std::max<std::int64_t>(1, steps.value_or(1)));
      steps = steps.value_or(1);
    } else if (whole && micro && !steps) {
      steps = *whole / (ranks * std::max<std::int64_t>(1, *micro));
    }
    if (whole && *whole != *micro * *steps * ranks) {
      const std::int64_t nearest = std::max<std::int64_t>(1, *micro) *
                                   std::max<std::int64_t>(1, *steps) * ranks;
      values_.fail(fmt::format(
          "'train_batch_size' is {}, but must be the microbatch {} * {} "
          "accumulation steps * {} data ranks; the nearest valid value is {}.",
          *whole, *micro, *steps, ranks, nearest));
    }
    if (micro) {
      config_.set("micro_batch", *micro);
    }
    if (steps) {
      config_.set("grad_accum", *steps);
    }
  }

  void read_optimizer() {
    const auto type = values_.take_text("optimizer.type");
    if (!type) {
      return;
    }
    std::string name = *type;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    if (name == "sgd") {
      const auto momentum = values_.take("optimizer.params.momentum");
      const bool moves = momentum && *momentum != 0;
      config_.set("optimizer", moves ? "momentum" : "sgd");
    } else if (name == "adam" || name == "adamw" || name == "lamb") {
      config_.set("optimizer", "adamw");
    } else {
      config_.notes.push_back(
          fmt::format("[deepspeed] The state of optimizer '{}' is not known: "
                      "taken to be AdamW's.",
                      *type));
    }
  }

  void read_activations() {
    if (values_.take_bool("activation_checkpointing.cpu_checkpointing")
            .value_or(false)) {
      config_.set("offload.activations", "host");
      config_.notes.push_back(
          "[deepspeed] What is checkpointed is the model's choice there: add "
          "checkpointing=full or selective.");
    }
  }

  LauncherValues values_;
  const ModelShape& model_;
  int num_gpus_;
  std::int64_t tensor_ = 1;
  LauncherConfig config_;
};

}  // namespace

LauncherConfig deepspeed_config(std::string_view text, std::string_view source,
                                const ModelShape& model, int num_gpus) {
  const std::string prefix = fmt::format("[deepspeed] {}: ", source);
  const json settings = json::parse(text, nullptr, false, true);
  if (settings.is_discarded()) {
    throw std::invalid_argument(prefix + "The file is not JSON.");
  }
  return DeepSpeedReader(settings, prefix, model, num_gpus).read();
}

LauncherConfig deepspeed_config_from_file(const std::string& path,
                                          const ModelShape& model,
                                          int num_gpus) {
  return deepspeed_config(read_text(path, "[plan]"), path, model, num_gpus);
}

}  // namespace accordion::plan
