// SPDX-License-Identifier: BSD-3-Clause
#include "tests/train/train_ranks.h"

#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/train/trainer.h"
#include "tests/data/fixtures.h"

namespace accordion::testing {

namespace fs = std::filesystem;

namespace {

/// JSON has null for what is not finite.
double finite_or_infinity(const nlohmann::json& number) {
  return number.is_null() ? std::numeric_limits<double>::infinity()
                          : number.get<double>();
}

}  // namespace

const RankProgram kTrainRank("train", [](const RankContext& context) {
  const TrainConfig config = parse_config("", "test.toml", context.arguments);
  train(config, Rendezvous::from_environment());
});

fs::path fixture(const std::string& name) {
  return fs::path(ACCORDION_TEST_DATA) / "parity" / name;
}

std::vector<Step> recorded(const std::string& curve) {
  std::ifstream file(fixture(curve + ".csv"));
  std::string line;
  std::getline(file, line);  // the header
  std::vector<Step> steps;
  while (std::getline(file, line)) {
    std::istringstream fields(line.substr(line.find(',') + 1));
    Step step;
    char comma = 0;
    fields >> step.loss >> comma >> step.grad_norm;
    steps.push_back(step);
  }
  return steps;
}

std::vector<nlohmann::json> metrics_of(const fs::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

std::vector<std::string> with(std::vector<std::string> keys,
                              const std::vector<std::string>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<std::string> fresh_keys() {
  return with(parity_keys("tiny"),
              {"model.init=", "data.order=shuffled", "data.seq_len=64",
               "optimizer.decay_norms=false"});
}

std::vector<Step> measured(const fs::path& run) {
  std::vector<Step> steps;
  for (const nlohmann::json& json : metrics_of(run)) {
    if (json.contains("grad_norm")) {
      EXPECT_EQ(json["step"], steps.size());
      steps.push_back({finite_or_infinity(json["loss"]),
                       finite_or_infinity(json["grad_norm"])});
    }
  }
  return steps;
}

std::vector<std::string> parity_keys(const std::string& model) {
  return {"model.config=" + fixture(model + ".json").string(),
          "model.init=" + fixture("init-" + model + ".safetensors").string(),
          "data.path=" + fixture("data.txt").string(),
          "data.seq_len=128",
          "data.order=strided",
          "optimizer.decay_norms=true",
          "train.threads=1"};
}

std::vector<Step> train_in_ranks(int world_size,
                                 std::vector<std::string> keys) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  keys.push_back("run.dir=" + run.string());
  expect_ranks_pass(kTrainRank, world_size, keys);
  return measured(run);
}

void expect_follows(const std::vector<Step>& got,
                    const std::vector<Step>& expected, double loss_tolerance,
                    double norm_tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i].loss / expected[i].loss, 1.0, loss_tolerance)
        << "step " << i;
    ASSERT_NEAR(got[i].grad_norm / expected[i].grad_norm, 1.0, norm_tolerance)
        << "step " << i;
  }
}

}  // namespace accordion::testing
