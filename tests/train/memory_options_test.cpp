// SPDX-License-Identifier: BSD-3-Clause
// Runs that trade memory for time: the same curve, or one beside it.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::expect_follows;
using testing::expect_ranks_pass;
using testing::fresh_keys;
using ::testing::HasSubstr;
using testing::kTrainRank;
using testing::metrics_of;
using testing::read_file;
using testing::TemporaryFolder;
using testing::train_in_ranks;
using testing::with;

/// Norms of gradients are sums over units, which backward comes by in another
/// order than that of an update behind it.
void expect_same_losses(const std::vector<testing::Step>& got,
                        const std::vector<testing::Step>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].loss, want[i].loss) << "step " << i;
    EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-14 * want[i].grad_norm)
        << "step " << i;
  }
}

struct MemoryOption {
  std::string key;  // of which one value counts
  std::string value;
  bool same_bits = true;
};

const MemoryOption kMemoryOptions[] = {
    {"memory.activation_checkpointing", "selective"},
    {"memory.activation_checkpointing", "full"},
    {"memory.optimizer_in_backward", "true"},
    {"memory.offload", "optimizer"},
    {"memory.offload", "parameters"},
    {"memory.chunked_loss_tokens", "24", false},
    {"optimizer.moments_dtype", "bf16", false}};

// Rounding of what is added up in another order, or kept in 8 bits, moves the
// losses of five steps by less than this.
TEST(MemoryOptions, RunWithoutActivationsIsTheSameBitForBit) {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* strategy : {"full_shard", "shard_optimizer"}) {
      const auto keys =
          with(fresh_keys(), {"train.steps=5", "train.batch_size=2",
                              "train.grad_accumulation=2",
                              std::string("fsdp.param_dtype=") + dtype,
                              std::string("fsdp.strategy=") + strategy});
      const auto plain = train_in_ranks(2, keys);
      for (const char* layers : {"selective", "full", "2"}) {
        const auto key = std::string("memory.activation_checkpointing=");
        EXPECT_EQ(train_in_ranks(2, with(keys, {key + layers})), plain)
            << dtype << ", " << strategy << ", " << layers;
      }
    }
  }
}

TEST(MemoryOptions, StepsInBackwardAreTheSameBitForBitWithoutClipping) {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* strategy :
         {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"}) {
      const auto keys =
          with(fresh_keys(),
               {"train.steps=5", "train.batch_size=2", "optimizer.clip_norm=0",
                std::string("fsdp.param_dtype=") + dtype,
                std::string("fsdp.strategy=") + strategy});
      const auto plain = train_in_ranks(2, keys);
      for (const char* layers : {"none", "full"}) {
        SCOPED_TRACE(std::string(dtype) + ", " + strategy + ", " + layers);
        expect_same_losses(
            train_in_ranks(2, with(keys, {"memory.optimizer_in_backward=true",
                                          "memory.activation_checkpointing=" +
                                              std::string(layers)})),
            plain);
      }
    }
  }
}

TEST(MemoryOptions, OffloadedRunsAreTheSameBitForBit) {
  const TemporaryFolder folder;
  const std::string to = "memory.offload_to=" + folder.path().string();
  for (const char* in_backward : {"false", "true"}) {
    const auto keys =
        with(fresh_keys(),
             {"train.steps=5", "train.batch_size=2", "checkpoint.async=false",
              std::string("memory.optimizer_in_backward=") + in_backward});
    EXPECT_EQ(train_in_ranks(2, with(keys, {"memory.offload=optimizer", to})),
              train_in_ranks(2, keys));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(MemoryOptions, OffloadedShardsAreTheSameBitForBit) {
  const TemporaryFolder folder;
  const std::string to = "memory.offload_to=" + folder.path().string();
  for (const char* strategy :
       {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      const auto keys = with(
          fresh_keys(),
          {"train.steps=4", "train.batch_size=2", "train.grad_accumulation=2",
           "checkpoint.async=false", std::string("fsdp.strategy=") + strategy,
           std::string("fsdp.param_dtype=") + dtype});
      const auto plain = train_in_ranks(2, keys);
      for (const char* what : {"gradients", "parameters"}) {
        EXPECT_EQ(
            train_in_ranks(
                2, with(keys, {std::string("memory.offload=") + what, to})),
            plain)
            << strategy << ", " << dtype << ", " << what;
      }
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(MemoryOptions, OffloadedParametersAreTheSameWithOtherTransports) {
  const auto keys =
      with(fresh_keys(), {"train.steps=3", "train.batch_size=2",
                          "checkpoint.async=false", "fsdp.backend=gloo"});
  EXPECT_EQ(train_in_ranks(3, with(keys, {"memory.offload=parameters"})),
            train_in_ranks(3, keys));
}

TEST(MemoryOptions, OffloadedActivationsAreTheSameBitForBit) {
  const TemporaryFolder folder;
  const auto keys =
      with(fresh_keys(),
           {"train.steps=4", "train.batch_size=2", "train.grad_accumulation=2",
            "memory.offload_to=" + folder.path().string()});
  for (const char* layers : {"full", "2"}) {
    const std::string on =
        std::string("memory.activation_checkpointing=") + layers;
    EXPECT_EQ(
        train_in_ranks(2, with(keys, {on, "memory.offload_activations=true"})),
        train_in_ranks(
            2, with(fresh_keys(), {"train.steps=4", "train.batch_size=2",
                                   "train.grad_accumulation=2", on})));
  }
  const std::string full = "memory.activation_checkpointing=full";
  const auto one = with(fresh_keys(), {"train.steps=4", "train.batch_size=2",
                                       "memory.optimizer_in_backward=true",
                                       "checkpoint.async=false"});
  EXPECT_EQ(train_in_ranks(
                2, with(one, {full, "memory.offload_activations=true",
                              "memory.offload=parameters",
                              "memory.offload_to=" + folder.path().string()})),
            train_in_ranks(2, one))
      << "all that can be offloaded";
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(MemoryOptions, EveryPairOfMemoryOptionsFollowsTheRunWithout) {
  const auto keys =
      with(fresh_keys(), {"train.steps=5", "train.batch_size=2",
                          "optimizer.clip_norm=0", "checkpoint.async=false"});
  const auto plain = train_in_ranks(2, keys);
  for (const MemoryOption& first : kMemoryOptions) {
    for (const MemoryOption& second : kMemoryOptions) {
      if (first.key == second.key || first.key > second.key) {
        continue;
      }
      SCOPED_TRACE(first.key + "=" + first.value + ", " + second.key + "=" +
                   second.value);
      const auto got =
          train_in_ranks(2, with(keys, {first.key + "=" + first.value,
                                        second.key + "=" + second.value}));
      if (first.same_bits && second.same_bits) {
        expect_same_losses(got, plain);
      } else {
        expect_follows(got, plain, 2e-4, 2e-3);
      }
    }
  }
}

TEST(MemoryOptions, OffloadedBytesAreInTheMetrics) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(
      kTrainRank, 2,
      with(fresh_keys(), {"run.dir=" + run.string(), "train.steps=3",
                          "checkpoint.every=0", "memory.offload=optimizer",
                          "memory.offload_to=" + folder.path().string()}));
  const auto lines = metrics_of(run);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_GT(lines[step]["offload"]["written_mib"].get<double>(), 0.0);
  }
  EXPECT_EQ(lines[0]["offload"]["written_mib"],
            lines[2]["offload"]["written_mib"]);
  EXPECT_THAT(read_file(run / "log-rank1.txt"),
              HasSubstr("moments offloaded: 8 buffers"));
}

TEST(MemoryOptions, OffloadedBytesAreThoseOfAllThatIsOffloaded) {
  const auto written = [](const std::vector<std::string>& more) {
    const TemporaryFolder folder;
    const fs::path run = folder.path() / "run";
    expect_ranks_pass(
        kTrainRank, 2,
        with(
            with(fresh_keys(), {"run.dir=" + run.string(), "train.steps=3",
                                "checkpoint.every=0", "train.batch_size=2",
                                "memory.activation_checkpointing=full",
                                "memory.offload_to=" + folder.path().string()}),
            more));
    return metrics_of(run)[2]["offload"]["written_mib"].get<double>();
  };
  const double moments = written({"memory.offload=optimizer"});
  // Both moments, then as many gradients as one, then parameters.
  EXPECT_NEAR(written({"memory.offload=gradients"}), 1.5 * moments,
              0.02 * moments);
  EXPECT_NEAR(written({"memory.offload=parameters"}), 2 * moments,
              0.02 * moments);
  EXPECT_GT(written({"memory.offload_activations=true"}), 0.0);
}

TEST(MemoryOptions, LossInChunksFollowsTheWholeOne) {
  const auto keys =
      with(fresh_keys(), {"train.steps=5", "train.batch_size=2",
                          "memory.activation_checkpointing=full"});
  const auto whole = train_in_ranks(2, keys);
  for (const char* tokens : {"7", "32"}) {
    const std::string key = "memory.chunked_loss_tokens=";
    expect_follows(train_in_ranks(2, with(keys, {key + tokens})), whole, 1e-5,
                   1e-4);
  }
}

}  // namespace
}  // namespace accordion
