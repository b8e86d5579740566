// SPDX-License-Identifier: BSD-3-Clause
// What runs say of their memory, and where it ends them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/train/activation_estimate.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/memory_advice.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/training_model.h"
#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using testing::expect_ranks_pass;
using testing::fixture;
using ::testing::HasSubstr;
using testing::kTrainRank;
using ::testing::Not;
using testing::parity_keys;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_in_ranks;

constexpr double kMib = 1 << 20;

std::vector<std::string> keys_with(const std::vector<std::string>& more) {
  return testing::with(parity_keys("tiny"), more);
}

TrainConfig config_with(const std::vector<std::string>& more) {
  return parse_config("", "test.toml", keys_with(more));
}

/// The lines of metrics.jsonl of a run.
std::vector<nlohmann::json> lines_of_run(int world,
                                         std::vector<std::string> keys) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  keys.push_back("run.dir=" + run.string());
  expect_ranks_pass(kTrainRank, world, keys);
  return testing::metrics_of(run);
}

double parameters_mib(const TrainConfig& config) {
  return static_cast<double>(open_model_config(config).numel()) * 4 / kMib;
}

TEST(TrainingMemory, EachStepSaysWhatWasHeldByKind) {
  const std::vector<std::string> keys = {"train.steps=6", "train.batch_size=4"};
  const auto lines = lines_of_run(2, keys_with(keys));
  const double share = parameters_mib(config_with(keys)) / 2;
  for (std::size_t step = 0; step < 6; ++step) {
    const auto& memory = lines.at(step)["memory"];
    EXPECT_NEAR(memory["sharded_parameters"], share, 0.01 * share);
    EXPECT_NEAR(memory["gradients"], share, 0.01 * share);
    EXPECT_NEAR(memory["optimizer"], 2 * share, 0.02 * share);
    EXPECT_GT(memory["activations"], 1.0);
    EXPECT_GE(memory["total"], memory["by_phase"]["forward"]);
    EXPECT_GT(memory["by_phase"]["forward"], memory["by_phase"]["optimizer"]);
  }
  EXPECT_EQ(lines.at(5)["memory"], lines.at(3)["memory"]);
}

TEST(TrainingMemory, SummaryReconcilesEachRankWithTheOperatingSystem) {
  const auto lines =
      lines_of_run(2, keys_with({"train.steps=5", "train.batch_size=4"}));
  const auto& summary = lines.back();
  ASSERT_EQ(summary["memory"].size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto& memory = summary["memory"][rank];
    const double total = memory["total"];
    const double outside = memory["outside"];
    const double pss = summary["pss_mib"][rank];
    // At the end no activations are held, so that this bounds it from above.
    EXPECT_GT(outside, 10.0) << "code and libraries";
    EXPECT_LT(outside, pss);
    EXPECT_GT(total + outside, 0.8 * pss);
  }
}

TEST(TrainingMemory, EstimateOfActivationsIsWithinATenthOfWhatIsHeld) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"fsdp.param_dtype=bf16"},
      {"memory.activation_checkpointing=full"},
      {"memory.activation_checkpointing=2"},
      {"memory.activation_checkpointing=selective"},
      {"memory.activation_checkpointing=selective", "fsdp.param_dtype=bf16"},
      {"memory.chunked_loss_tokens=64"},
      {"memory.activation_checkpointing=full", "memory.chunked_loss_tokens=64"},
      {"memory.activation_checkpointing=full",
       "memory.offload_activations=true"},
  };
  for (std::vector<std::string> keys : variants) {
    SCOPED_TRACE(::testing::PrintToString(keys));
    keys.insert(keys.end(), {"train.steps=4", "train.batch_size=2"});
    const auto lines = lines_of_run(2, keys_with(keys));
    const TrainConfig config = config_with(keys);
    const double estimate = static_cast<double>(estimated_activations(
                                open_model_config(config), config)) /
                            kMib;
    const double held = lines.at(3)["memory"]["activations"];
    EXPECT_NEAR(held / estimate, 1.0, 0.1) << held << " MiB held";
  }
}

/// Logits are most of it, and there is one tensor of their size: their gradient
/// takes their place, and no copy is made for the gradient of the head.
TEST(TrainingMemory, EstimateOfActivationsHoldsForManyClasses) {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model.json";
  {
    std::ifstream tiny(fixture("tiny.json"));
    nlohmann::json config = nlohmann::json::parse(tiny);
    config["vocab_size"] = 16384;
    std::ofstream(model) << config;
  }
  const std::vector<std::string> keys = keys_with(
      {"model.config=" + model.string(), "model.init=", "train.steps=4",
       "train.batch_size=16", "fsdp.param_dtype=bf16"});
  const TrainConfig config = parse_config("", "test.toml", keys);
  const double estimate = static_cast<double>(estimated_activations(
                              open_model_config(config), config)) /
                          kMib;
  const double held = lines_of_run(1, keys).at(3)["memory"]["activations"];
  EXPECT_NEAR(held / estimate, 1.0, 0.1) << held << " MiB held";
}

TEST(TrainingMemory, EstimateOfStatesAndBuffersIsWhatIsHeld) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"fsdp.strategy=shard_grad_op", "fsdp.param_dtype=bf16"},
      {"fsdp.strategy=shard_optimizer"},
      {"fsdp.strategy=no_shard", "fsdp.param_dtype=bf16"},
      {"fsdp.min_shard_numel=1000", "fsdp.param_dtype=bf16"},
      {"fsdp.copies_in_place=false", "fsdp.param_dtype=bf16"},
      {"fsdp.prefetch=0"},
      {"train.grad_accumulation=2"},
      {"optimizer.moments_dtype=bf16"},
      {"memory.optimizer_in_backward=true"},
      {"memory.optimizer_in_backward=true", "fsdp.strategy=no_shard"},
      {"memory.offload=optimizer", "checkpoint.async=false"},
      {"memory.offload=gradients", "checkpoint.async=false"},
      {"memory.offload=gradients", "checkpoint.async=false",
       "train.grad_accumulation=2", "fsdp.param_dtype=bf16"},
      {"memory.offload=parameters", "checkpoint.async=false"},
      {"memory.offload=parameters", "checkpoint.async=false",
       "memory.optimizer_in_backward=true", "fsdp.min_shard_numel=1000"},
      {"memory.offload=parameters", "checkpoint.async=false",
       "fsdp.strategy=no_shard"},
      {"memory.offload=optimizer", "checkpoint.async=false",
       "memory.optimizer_in_backward=true", "optimizer.moments_dtype=bf16"},
  };
  const std::vector<MeshAxis> axes = {{.name = "shard", .size = 2}};
  for (std::vector<std::string> keys : variants) {
    SCOPED_TRACE(::testing::PrintToString(keys));
    keys.insert(keys.end(), {"train.steps=4", "train.batch_size=1"});
    const auto lines = lines_of_run(2, keys_with(keys));
    const TrainConfig config = config_with(keys);
    const MemoryByKind estimate =
        estimated_memory(open_model_config(config), config, axes, true);
    for (const char* name :
         {"sharded_parameters", "unsharded_parameters", "gradients",
          "optimizer", "communication_buffers"}) {
      const auto kind =
          std::ranges::find(kMemoryKinds, name, &MemoryKind::name);
      const double expected = static_cast<double>(estimate.*kind->bytes) / kMib;
      EXPECT_NEAR(lines.at(3)["memory"][name], expected,
                  0.005 + 0.01 * expected)  // as rounded in the file
          << name;
    }
  }
}

TEST(TrainingMemory, WhatIsOffloadedTakesLessThanInMemory) {
  const auto held = [](std::vector<std::string> keys, const char* kind) {
    keys.insert(keys.end(), {"train.steps=4", "train.batch_size=2",
                             "checkpoint.async=false",
                             "memory.activation_checkpointing=full"});
    return lines_of_run(2, keys_with(keys)).at(3)["memory"][kind].get<double>();
  };
  EXPECT_LT(held({"memory.offload=optimizer"}, "optimizer"),
            0.5 * held({}, "optimizer"));
  EXPECT_LT(held({"memory.offload=parameters"}, "sharded_parameters"),
            0.6 * held({}, "sharded_parameters"))
      << "buffers for gradients too";
  EXPECT_LT(held({"memory.offload_activations=true"}, "activations"),
            held({}, "activations"));
}

TEST(TrainingMemory, LimitEndsEveryRankAndSaysWhatWouldSave) {
  const TemporaryFolder folder;
  const auto results =
      run_ranks(kTrainRank, 2,
                keys_with({"train.steps=5", "train.batch_size=8",
                           "fsdp.strategy=shard_grad_op", "memory.limit=24MiB",
                           "run.dir=" + (folder.path() / "run").string()}));
  int told = 0;
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1) << result.output;
    if (result.output.find("[memory]") == std::string::npos) {
      continue;  // its peer was faster
    }
    ++told;
    EXPECT_THAT(result.output,
                HasSubstr("the limit of 24.0 MiB a rank is exceeded by "));
    EXPECT_THAT(result.output, HasSubstr("in forward of unit 'model.layers."));
    EXPECT_THAT(result.output, HasSubstr("Held: sharded parameters "));
    EXPECT_THAT(result.output, HasSubstr("On each rank would save: "));
    EXPECT_THAT(result.output,
                HasSubstr("memory.activation_checkpointing = \"full\" about "));
    EXPECT_THAT(result.output, HasSubstr("fsdp.param_dtype = \"bf16\" about "));
  }
  EXPECT_GE(told, 1);
}

TEST(TrainingMemory, LimitBelowTheStateEndsTheRunBeforeItsFirstStep) {
  const TemporaryFolder folder;
  const auto results =
      run_ranks(kTrainRank, 2,
                keys_with({"train.steps=5", "memory.limit=4MiB",
                           "run.dir=" + (folder.path() / "run").string()}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("the limit of 4.0 MiB a rank is "
                                         "exceeded by what is held, in rest"));
  }
}

TEST(TrainingMemory, LimitThatSufficesChangesNoStep) {
  const std::vector<std::string> keys = {"train.steps=4", "train.batch_size=2"};
  auto limited = keys;
  limited.push_back("memory.limit=1GiB");
  EXPECT_EQ(train_in_ranks(2, keys_with(limited)),
            train_in_ranks(2, keys_with(keys)));  // bit for bit
}

TEST(CheckpointingChoice, IsTheCheapestThatFitsTheLimit) {
  const std::vector<MeshAxis> axes = {{.name = "shard", .size = 2}};
  const auto chosen = [&](std::int64_t bytes) {
    const TrainConfig config = config_with(
        {"memory.activation_checkpointing=auto", "train.batch_size=16",
         "memory.limit=" + std::to_string(bytes / 1024) + "KiB"});
    return with_checkpointing(config, open_model_config(config), axes)
        .memory.activation_checkpointing;
  };
  const auto expected_with = [&](const std::string& layers) {
    const TrainConfig config = config_with(
        {"memory.activation_checkpointing=" + layers, "train.batch_size=16"});
    const MemoryByKind memory =
        estimated_memory(open_model_config(config), config, axes, true);
    return memory.total() + memory.activations / 10;
  };
  for (const char* layers : {"none", "selective", "full"}) {
    EXPECT_EQ(chosen(expected_with(layers) + 1024), layers);
  }
  EXPECT_EQ(chosen(expected_with("none") - 1024), "selective");
  const TrainConfig plain = config_with({});
  EXPECT_EQ(with_checkpointing(plain, open_model_config(plain), axes)
                .memory.activation_checkpointing,
            "none");
  try {
    chosen(1 << 20);
    FAIL() << "a limit of 1 MiB fits nothing";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("memory.limit is 1.0 MiB, and a rank would hold"));
  }
}

class MemoryAdvice : public ::testing::Test {
 protected:
  /// What a run on four ranks is told, with nothing held but `held`.
  std::vector<std::string> settings(const std::vector<std::string>& keys,
                                    const MemoryByKind& held = {}) {
    const TrainConfig config = config_with(keys);
    const std::vector<MeshAxis> axes = {{.name = "shard", .size = 4}};
    std::vector<std::string> result;
    std::int64_t last = INT64_MAX;
    for (const MemorySaving& saving :
         memory_savings(config, open_model_config(config), axes, true, held)) {
      EXPECT_GT(saving.bytes, 0);
      EXPECT_LE(saving.bytes, last) << "the largest first";
      last = saving.bytes;
      result.push_back(saving.setting);
    }
    return result;
  }
};

TEST_F(MemoryAdvice, ListsOnlyWhatIsNotOnYet) {
  EXPECT_THAT(
      settings({"train.batch_size=8", "fsdp.strategy=no_shard"},
               {.sharded_parameters = 1 << 20, .optimizer = 2 << 20}),
      ::testing::IsSupersetOf(
          {"memory.activation_checkpointing = \"full\"",
           "train.batch_size = 4 with train.grad_accumulation = 2",
           "memory.optimizer_in_backward = true",
           "optimizer.moments_dtype = \"bf16\"",
           "fsdp.strategy = \"full_shard\"", "fsdp.param_dtype = \"bf16\""}));
  EXPECT_THAT(
      settings({"train.batch_size=1", "fsdp.param_dtype=bf16",
                "fsdp.prefetch=0", "memory.activation_checkpointing=full",
                "memory.chunked_loss_tokens=64",
                "memory.optimizer_in_backward=true",
                "memory.offload=parameters", "checkpoint.async=false",
                "optimizer.moments_dtype=bf16"}),
      ::testing::IsEmpty());
}

TEST_F(MemoryAdvice, LeavesOutWhatSavesLessThanAHundredth) {
  EXPECT_THAT(
      settings({"train.batch_size=2"}, {.other = std::int64_t{1} << 40}),
      ::testing::IsEmpty());
  EXPECT_EQ(describe(std::vector<MemorySaving>{}),
            "No setting saves much: use more ranks, or a smaller model.");
}

TEST_F(MemoryAdvice, ShardingSavesWhatTheOtherRanksThenHold) {
  const TrainConfig config = config_with({"fsdp.strategy=no_shard"});
  const LlamaConfig model = open_model_config(config);
  const std::vector<MeshAxis> axes = {{.name = "shard", .size = 4}};
  const auto savings = memory_savings(config, model, axes, true, {});
  const auto sharding = std::ranges::find(
      savings, "fsdp.strategy = \"full_shard\"", &MemorySaving::setting);
  ASSERT_NE(sharding, savings.end());
  // Parameters, gradients and two moments in fp32, which are gathered in place:
  // no slots are new.
  const std::int64_t states = model.numel() * 4 * 4;
  const auto expected = static_cast<double>(states / 4 * 3);
  EXPECT_NEAR(static_cast<double>(sharding->bytes), expected, 0.01 * expected);
  EXPECT_THAT(describe(savings),
              HasSubstr("On each rank would save: memory.activation_check"));
}

}  // namespace
}  // namespace accordion
