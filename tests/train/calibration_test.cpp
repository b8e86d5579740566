// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/calibration.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/train/bench.h"
#include "accordion/train/bench_report.h"
#include "accordion/train/plan_request.h"
#include "tests/data/fixtures.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::RankContext;
using testing::RankProgram;

/// Calibrates with small sizes alone, and writes what each rank got to the
/// folder that is its first argument; predicts a run with it.
const RankProgram kCalibrateRank("calibrate", [](const RankContext& context) {
  const Rendezvous rendezvous = Rendezvous::from_environment();
  const fs::path folder = context.arguments[0];
  const plan::Cluster cluster =
      calibrate(rendezvous, {.seconds_each = 0.0,
                             .seconds_of_steps = 0.0,
                             .most_flops = 3e9,
                             .scratch = folder.string()});
  std::ofstream(folder / fmt::format("{}.toml", context.rank))
      << plan::to_toml(cluster);
  const std::vector<std::string> keys(context.arguments.begin() + 1,
                                      context.arguments.end());
  const BenchResult result =
      bench(parse_config("", "test.toml", keys), rendezvous,
            {.steps = 2, .cluster = &cluster});
  std::ofstream(folder / fmt::format("{}.json", context.rank))
      << to_json(result);
});

TEST(Calibration, IsTheSameOnAllRanksAndReadBack) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> arguments =
      testing::with({folder.path().string()}, testing::parity_keys("tiny"));
  testing::expect_ranks_pass(kCalibrateRank, 2, arguments);
  const std::string text = testing::read_file(folder.path() / "0.toml");
  EXPECT_EQ(text, testing::read_file(folder.path() / "1.toml"));
  const plan::Cluster cluster = plan::cluster_from_toml(text, "0.toml");
  EXPECT_EQ(cluster.num_gpus(), 2);
  EXPECT_GT(cluster.gpu.peak_32bit_flops, 1e9);
  EXPECT_GT(cluster.inside.bytes_per_s, 1e7);
  EXPECT_GT(cluster.inside.reduce_bytes_per_s, 1e7);
  EXPECT_GT(cluster.between.bytes_per_s, 1e6);
  EXPECT_NE(cluster.disk_bytes_per_s, plan::Cluster().disk_bytes_per_s);
  for (const auto kind :
       {plan::MeasuredKind::Product, plan::MeasuredKind::Attention,
        plan::MeasuredKind::Step, plan::MeasuredKind::Optimizer,
        plan::MeasuredKind::Gather, plan::MeasuredKind::Reduce}) {
    EXPECT_TRUE(std::ranges::any_of(
        cluster.gpu.measured,
        [kind](const plan::MeasuredRate& rate) { return rate.kind == kind; }))
        << to_string(kind);
  }
  const auto json =
      nlohmann::json::parse(testing::read_file(folder.path() / "0.json"));
  const auto& predicted = json["predicted_ms"];
  EXPECT_GT(predicted["compute"], 0.0);
  EXPECT_GT(predicted["gather"], 0.0);
  EXPECT_GT(predicted["step"], predicted["compute"]);
}

TEST(PlanRequest, RefusesAClusterOfOtherSize) {
  const TrainConfig config =
      parse_config("", "test.toml", testing::parity_keys("tiny"));
  const LlamaConfig model =
      LlamaConfig::from_file(testing::fixture("tiny.json"));
  const std::vector<MeshAxis> axes = {{.name = "shard", .size = 4}};
  EXPECT_EQ(plan_request(model, config, axes, plan::parse_cluster("4xH100"))
                .model.num_params(),
            model.numel());
  EXPECT_THROW(
      (void)plan_request(model, config, axes, plan::parse_cluster("8xH100")),
      std::invalid_argument);
}

}  // namespace
}  // namespace accordion
