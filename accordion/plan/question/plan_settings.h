// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/software_stack.h"
#include "accordion/plan/strategy.h"
#include "accordion/plan/training.h"

namespace accordion::plan {

/// What a training run costs besides time. No price is assumed: one that is 0
/// was not stated, and its cost is not shown.
struct Prices {
  /// Tokens of the whole run; 0: not stated.
  double train_tokens = 0.0;
  double gpu_hour_price = 0.0;  ///< money for one GPU for one hour
  double kwh_price = 0.0;       ///< money for one kWh
  /// Power that is drawn for each watt of the boards: hosts, network, cooling.
  double power_factor = 1.0;

  bool operator==(const Prices&) const = default;
};

/// What KEY=VALUE on the command line sets: all of a question but the model and
/// the cluster.
struct PlanSettings {
  /// dp_shard 0 and dp_replicate 0: from the cluster, see resolved().
  Strategy strategy = {.dp_replicate = 0, .dp_shard = 0, .offload = {}};
  Training training;
  SoftwareStack stack = find_stack("accordion");
  /// Copies of the state in as many hosts, each cut over the GPUs of one.
  bool hybrid = false;
  /// Tokens of a step of all ranks; 0: what microbatches give. A search keeps
  /// it.
  std::int64_t batch_tokens = 0;
  Prices prices;
};

}  // namespace accordion::plan
