// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/rank_harness.h"

namespace accordion::testing {

/// What a step line of metrics.jsonl and a recorded curve have in common.
struct Step {
  double loss = 0.0;
  double grad_norm = 0.0;
  bool operator==(const Step&) const = default;
};

/// A file of tests/data/parity.
std::filesystem::path fixture(const std::string& name);

/// A curve that PyTorch left, as "tiny.global-batch-8".
std::vector<Step> recorded(const std::string& curve);

/// The steps of a run folder; infinity where a number is not finite.
std::vector<Step> measured(const std::filesystem::path& run);

/// Configuration keys that train `model` on the recorded data, from the
/// recorded weights, by the recorded scheme.
std::vector<std::string> parity_keys(const std::string& model);

/// `keys`, and `more` behind them, which count where both have one.
std::vector<std::string> with(std::vector<std::string> keys,
                              const std::vector<std::string>& more);

/// Keys of a small run on shuffled data from fresh weights: what a user's has.
std::vector<std::string> fresh_keys();

/// The lines of a run folder's metrics.jsonl.
std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run);

/// A rank of a training run; its arguments are configuration keys.
extern const RankProgram kTrainRank;

/// Trains in processes of their own and returns the steps.
std::vector<Step> train_in_ranks(int world_size, std::vector<std::string> keys);

/// Checks each step of one curve against another, relatively.
void expect_follows(const std::vector<Step>& got,
                    const std::vector<Step>& expected, double loss_tolerance,
                    double norm_tolerance);

}  // namespace accordion::testing
