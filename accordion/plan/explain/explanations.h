// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/explain/explain.h"

// What explain() chooses from.
namespace accordion::plan::detail {

// Bytes of state (explain_state.cpp).
Explanation explain_bytes_per_parameter();
Explanation explain_zero();
Explanation explain_1b();
Explanation explain_10b();
Explanation explain_llama_65b();
Explanation explain_gpt3();

// Models on devices (explain_models.cpp).
Explanation explain_llama_70b();
Explanation explain_70b_on_a100();
Explanation explain_units();
Explanation explain_checkpointing();

// Time (explain_time.cpp).
Explanation explain_batch_size();
Explanation explain_interconnect();
Explanation explain_communication();

/// State of `params` parameters a rank, at `bytes` each, over `ranks`, in GB.
[[nodiscard]] double gigabytes(double params, double bytes, int ranks = 1);

}  // namespace accordion::plan::detail
