// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/memory_advice.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "accordion/train/memory_estimate.h"

namespace accordion {
namespace {

constexpr std::int64_t kChunk = 1024;

/// What a run would hold less if its configuration were another.
class Alternatives {
 public:
  Alternatives(const TrainConfig& config, const LlamaConfig& model,
               std::span<const MeshAxis> axes, bool shares_memory)
      : config_(config),
        model_(model),
        axes_(axes),
        shares_memory_(shares_memory),
        now_(total(config)) {}

  /// Those that save at least `least` bytes, the largest first.
  std::vector<MemorySaving> worth(std::int64_t least) {
    consider_activations();
    consider_sharding();
    consider_optimizer();
    std::erase_if(savings_, [least](const MemorySaving& saving) {
      return saving.bytes < std::max<std::int64_t>(least, 1);
    });
    std::ranges::stable_sort(savings_, std::ranges::greater{},
                             &MemorySaving::bytes);
    return std::move(savings_);
  }

 private:
  [[nodiscard]] std::int64_t total(const TrainConfig& config) const {
    return estimated_memory(model_, config, axes_, shares_memory_).total();
  }

  void consider(std::string setting, const TrainConfig& other) {
    savings_.push_back(
        {.setting = std::move(setting), .bytes = now_ - total(other)});
  }

  void consider_activations() {
    TrainConfig other = config_;
    other.memory.activation_checkpointing = "full";
    consider("memory.activation_checkpointing = \"full\"", other);
    other.memory.activation_checkpointing = "selective";
    consider("memory.activation_checkpointing = \"selective\"", other);
    other = config_;
    other.memory.chunked_loss_tokens = kChunk;
    consider(fmt::format("memory.chunked_loss_tokens = {}", kChunk), other);
    if (config_.train.batch_size % 2 == 0) {
      other = config_;
      other.train.batch_size /= 2;
      other.train.grad_accumulation *= 2;
      consider(
          fmt::format("train.batch_size = {} with train.grad_accumulation = {}",
                      other.train.batch_size, other.train.grad_accumulation),
          other);
    }
  }

  void consider_sharding() {
    TrainConfig other = config_;
    if (config_.fsdp.strategy != "hybrid") {
      other.fsdp.strategy = "full_shard";
      consider("fsdp.strategy = \"full_shard\"", other);
    }
    other = config_;
    other.fsdp.prefetch = 0;
    consider("fsdp.prefetch = 0", other);
    other = config_;
    if (config_.fsdp.param_dtype == "fp32") {
      other.fsdp.param_dtype = "bf16";
      consider("fsdp.param_dtype = \"bf16\"", other);
    } else {
      other.fsdp.copies_in_place = false;
      consider("fsdp.copies_in_place = false", other);
    }
  }

  void consider_optimizer() {
    TrainConfig other = config_;
    other.optimizer.moments_dtype = "bf16";
    consider("optimizer.moments_dtype = \"bf16\"", other);
    other = config_;
    other.memory.offload = "optimizer";
    consider("memory.offload = \"optimizer\"", other);
    other.memory.offload = "parameters";
    consider("memory.offload = \"parameters\"", other);
    if (config_.train.grad_accumulation == 1) {
      other = config_;
      other.memory.optimizer_in_backward = true;
      consider("memory.optimizer_in_backward = true", other);
    }
  }

  const TrainConfig& config_;
  const LlamaConfig& model_;
  std::span<const MeshAxis> axes_;
  bool shares_memory_;
  std::int64_t now_;
  std::vector<MemorySaving> savings_;
};

}  // namespace

std::vector<MemorySaving> memory_savings(const TrainConfig& config,
                                         const LlamaConfig& model,
                                         std::span<const MeshAxis> axes,
                                         bool shares_memory,
                                         const MemoryByKind& held) {
  return Alternatives(config, model, axes, shares_memory)
      .worth(held.total() / 100);
}

std::string describe(std::span<const MemorySaving> savings) {
  if (savings.empty()) {
    return "No setting saves much: use more ranks, or a smaller model.";
  }
  std::string text;
  for (const MemorySaving& saving : savings) {
    text += fmt::format("{}{} about {}", text.empty() ? "" : "; ",
                        saving.setting, describe_bytes(saving.bytes));
  }
  return "On each rank would save: " + text + ".";
}

}  // namespace accordion
