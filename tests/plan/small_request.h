// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/plan.h"

namespace accordion::plan::testing {

/// Llama 2 7B, fully sharded over `cluster`.
inline PlanRequest small_request(std::string_view cluster = "8xH100") {
  PlanRequest request;
  request.model = {.name = "llama",
                   .num_layers = 32,
                   .hidden_size = 4096,
                   .num_heads = 32,
                   .num_kv_heads = 32,
                   .head_dim = 128,
                   .intermediate_size = 11008,
                   .vocab_size = 32000};
  request.cluster = parse_cluster(cluster);
  request.strategy.dp_shard = request.cluster.num_gpus();
  request.training.seq_len = 2048;
  request.training.micro_batch = 2;
  request.stack = find_stack("accordion");
  return request;
}

}  // namespace accordion::plan::testing
