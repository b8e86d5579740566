// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/bench.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/train/bench_report.h"
#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::fixture;
using ::testing::HasSubstr;
using testing::parity_keys;
using testing::RankContext;
using testing::RankProgram;
using testing::TemporaryFolder;

constexpr int kSteps = 4;

/// Its first argument is a folder for what each rank measured; configuration
/// keys follow.
const RankProgram kBenchRank("bench", [](const RankContext& context) {
  const std::vector<std::string> keys(context.arguments.begin() + 1,
                                      context.arguments.end());
  const BenchResult result =
      bench(parse_config("", "test.toml", keys), Rendezvous::from_environment(),
            {.steps = kSteps});
  const fs::path folder = context.arguments[0];
  std::ofstream(folder / fmt::format("{}.json", context.rank))
      << to_json(result);
  std::ofstream(folder / fmt::format("{}.trace", context.rank))
      << result.trace_json;
});

nlohmann::json json_in(const fs::path& file) {
  return nlohmann::json::parse(testing::read_file(file));
}

std::vector<std::string> small_keys() {
  auto keys = parity_keys("tiny");
  keys.insert(keys.end(), {"data.seq_len=32", "train.batch_size=2",
                           "train.grad_accumulation=2"});
  return keys;
}

double sum_of_parts(const nlohmann::json& parts) {
  double sum = 0.0;
  for (const char* part :
       {"compute", "gather", "reduce", "optimizer", "data", "other"}) {
    EXPECT_GE(parts[part], 0.0) << part;
    sum += parts[part].get<double>();
  }
  return sum;
}

TEST(Bench, MeasuresTheStepsThatTrainTakes) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  auto arguments = small_keys();
  arguments.insert(arguments.begin(), folder.path().string());
  arguments.push_back("run.dir=" + run.string());
  testing::expect_ranks_pass(kBenchRank, 2, arguments);
  EXPECT_FALSE(fs::exists(run));

  const auto result = json_in(folder.path() / "0.json");
  EXPECT_EQ(result["world_size"], 2);
  EXPECT_EQ(result["tokens_per_step"], 2 * 2 * 2 * 32);
  EXPECT_EQ(result["step_ms"]["each"].size(), kSteps);
  EXPECT_EQ(result["step_ms"]["each"],
            json_in(folder.path() / "1.json")["step_ms"]["each"]);
  EXPECT_GE(result["page_faults_per_step"], 0.0);
  EXPECT_GT(result["peak_memory_mib"]["all_ranks_pss"], 10.0);
  const auto& memory = result["memory_bytes"];
  EXPECT_EQ(memory["held"]["optimizer"], memory["estimated"]["optimizer"]);
  EXPECT_GT(memory["held"]["activations"], 0);
  EXPECT_GT(result["matmul"]["flops_per_s"], 1e8);
  EXPECT_GT(result["memory_bytes_per_s"], 1e8);
  EXPECT_GT(result["mfu"], 0.0);
  EXPECT_LT(result["mfu"], 1.0);

  const auto trained = testing::train_in_ranks(2, [] {
    auto keys = small_keys();
    keys.push_back(fmt::format("train.steps={}", kBenchWarmupSteps + kSteps));
    return keys;
  }());
  ASSERT_EQ(result["losses"].size(), trained.size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(result["losses"][i], trained[i].loss) << i;
  }
}

TEST(Bench, OfADeviceIsRefused) {
  TrainConfig config;
  config.train.device = "cuda";
  EXPECT_THAT([&] { bench(config, Rendezvous{}, {}); },
              ::testing::ThrowsMessage<std::invalid_argument>(
                  ::testing::HasSubstr("scripts/gpu_check.sh")));
}

TEST(Bench, PartsAddUpToTheStep) {
  const TemporaryFolder folder;
  auto arguments = small_keys();
  arguments.insert(arguments.begin(), folder.path().string());
  testing::expect_ranks_pass(kBenchRank, 2, arguments);
  const auto result = json_in(folder.path() / "0.json");
  const auto& parts = result["breakdown_ms"];
  const double step = parts["step"];
  EXPECT_NEAR(sum_of_parts(parts), step, 1e-6 * step);
  EXPECT_NEAR(sum_of_parts(result["breakdown_percent"]), 100.0, 1e-6);
  // The trace's clock is read just inside of the step's.
  const double measured = result["step_ms"]["mean"];
  EXPECT_LE(step, measured);
  EXPECT_GT(step, 0.8 * measured);
  for (const char* part : {"compute", "gather", "reduce", "optimizer"}) {
    EXPECT_GT(parts[part], 0.0) << part;
  }
  const auto events = json_in(folder.path() / "1.trace")["traceEvents"];
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const nlohmann::json& event) {
                            return event["name"] == "forward model.layers.0";
                          }),
            2);  // one a microbatch
  EXPECT_TRUE(std::ranges::any_of(events, [](const nlohmann::json& event) {
    return event["name"] == "memory (MiB)" &&
           event["args"]["activations"] > 0.0;
  }));
}

TEST(Bench, OperationsOfATokenFollowFromTheModel) {
  LlamaConfig model;
  model.hidden_size = 512;
  model.intermediate_size = 1376;
  model.num_hidden_layers = 8;
  model.num_attention_heads = model.num_key_value_heads = 8;
  model.head_dim = 64;
  model.vocab_size = 256;
  // 6 * (8 * (4 * 512 * 512 + 3 * 512 * 1376) + 512 * 256) + 12 * 8 * 512 * 256
  EXPECT_EQ(flops_per_token(model, 256), 165'150'720.0);
  model.num_key_value_heads = 2;
  EXPECT_EQ(flops_per_token(model, 256),
            165'150'720.0 - 6.0 * 8 * 2 * 512 * 6 * 64);
}

BenchResult made_up() {
  BenchResult result;
  result.model = "some/folder/small.json";
  result.parameters = 25'600'000;
  result.flops_per_token = 165e6;
  result.strategy = "full_shard";
  result.param_dtype = "bf16";
  result.backend = "shm";
  result.world_size = 2;
  result.tokens_per_step = 2048;
  result.step_ms = {1100, 900, 1000};
  result.losses = {5, 4};
  result.grad_norms = {1, 1};
  result.breakdown = {.total = 1000,
                      .compute = 800,
                      .gather = 60,
                      .gather_wait = 25,
                      .reduce = 50,
                      .reduce_wait = 12.5,
                      .optimizer = 80,
                      .data = 7,
                      .other = 3};
  result.page_faults = 12;
  result.memory = {{300, 200}, {350, 210}};
  result.machine = {.matmul_flops = 1000e9, .memory_bytes = 14.2e9};
  return result;
}

TEST(BenchReport, TableHasEveryFigure) {
  const std::string table = to_table(made_up());
  for (const char* text :
       {"small.json: 25.6M parameters, 165.0 MFLOP a token",
        "full_shard in bf16 over 2 ranks (shm), 1 thread each, 2048 tokens a "
        "step; 3 steps after 3 to warm up",
        "2048   least 1862, most 2276", "1000.0   least 900.0, most 1100.0",
        "33.8 %", "1000   GFLOP/s: products of 1024 x 1024 matrices in bf16",
        "14.2   GB/s", "12   a step and rank",
        "410   MiB, all ranks, shared pages counted once; 350 resident",
        "60.0     6.0   25.0 ms awaited", "50.0     5.0   12.5 ms awaited",
        "1000.0   100.0"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(BenchReport, JsonHasEveryFigure) {
  const auto json = nlohmann::json::parse(to_json(made_up()));
  EXPECT_EQ(json["tokens_per_s"], 2048.0);
  EXPECT_EQ(json["step_ms"]["median"], 1000.0);
  EXPECT_EQ(json["step_ms"]["min"], 900.0);
  EXPECT_EQ(json["step_ms"]["max"], 1100.0);
  EXPECT_NEAR(json["mfu"], 0.33792, 1e-9);
  EXPECT_EQ(json["breakdown_ms"]["gather_wait"], 25.0);
  EXPECT_EQ(json["breakdown_percent"]["optimizer"], 8.0);
  EXPECT_EQ(json["peak_memory_mib"]["all_ranks_pss"], 410.0);
  EXPECT_EQ(json["losses"], (std::vector<double>{5, 4}));
}

}  // namespace
}  // namespace accordion
