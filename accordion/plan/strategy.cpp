// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/strategy.h"

#include <array>
#include <vector>

#include "accordion/plan/nearest_name.h"
#include "accordion/plan/training.h"

namespace accordion::plan {
namespace {

struct SpelledSharding {
  std::string_view name;
  Sharding sharding;
};

/// Ours first; FSDP's and DeepSpeed's names behind.
constexpr std::array<SpelledSharding, 12> kShardings = {{
    {"no_shard", Sharding::NoShard},
    {"shard_optimizer", Sharding::ShardOptimizer},
    {"shard_grad_op", Sharding::ShardGradOp},
    {"deepspeed_zero2", Sharding::DeepSpeedZero2},
    {"full_shard", Sharding::FullShard},
    {"ddp", Sharding::NoShard},
    {"zero1", Sharding::ShardOptimizer},
    {"zero2", Sharding::ShardGradOp},
    {"zero3", Sharding::FullShard},
    {"hybrid", Sharding::FullShard},
    {"hsdp", Sharding::FullShard},
    {"fsdp", Sharding::FullShard},
}};

}  // namespace

std::string_view to_string(Sharding sharding) {
  for (const SpelledSharding& spelled : kShardings) {
    if (spelled.sharding == sharding) {
      return spelled.name;
    }
  }
  return "unknown";
}

Sharding parse_sharding(std::string_view name) {
  return find_named(kShardings, name, "[parse_sharding] Sharding").sharding;
}

bool keeps_whole_copy(Sharding sharding) {
  return sharding == Sharding::ShardOptimizer ||
         sharding == Sharding::DeepSpeedZero2;
}

std::string_view to_string(OptimizerType optimizer) {
  switch (optimizer) {
    case OptimizerType::AdamW:
      return "adamw";
    case OptimizerType::AdamWBf16:
      return "adamw_bf16";
    case OptimizerType::AdamW8bit:
      return "adamw_8bit";
    case OptimizerType::Momentum:
      return "momentum";
    case OptimizerType::Sgd:
      return "sgd";
  }
  return "unknown";
}

double state_bytes(OptimizerType optimizer) {
  switch (optimizer) {
    case OptimizerType::AdamW:
      return 8.0;
    case OptimizerType::AdamWBf16:
      return 4.0;
    case OptimizerType::AdamW8bit:
      // Two moments of a byte, and a 4-byte scale each for 256 of them.
      return 2.0 + 8.0 / 256.0;
    case OptimizerType::Momentum:
      return 4.0;
    case OptimizerType::Sgd:
      return 0.0;
  }
  return 0.0;
}

}  // namespace accordion::plan
