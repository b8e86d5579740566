// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/published_row.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/published_network.h"
#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using nlohmann::json;
using testing::expect_message;

json row() {
  return {{"id", "a-run"},
          {"source", {{"repo", "pytorch/torchtitan"}}},
          {"model", "Llama 3.1 8B"},
          {"gpu", "h100_80gb"},
          {"n_gpus", 64},
          {"parallel", {{"dp_shard", 8}, {"tp", 8}}},
          {"seq_len", 8192},
          {"micro_batch", 2},
          {"precision", "bf16"},
          {"act_ckpt", "full"}};
}

TEST(PublishedRow, NetworksAreRatesOfOneGpu) {
  EXPECT_EQ(published_gbit_per_gpu("1600 Gb/s node-to-node RoCE", 8), 200.0);
  EXPECT_EQ(published_gbit_per_gpu("NVLink, 400 Gb/s RDMA per GPU", 8), 400.0);
  EXPECT_EQ(published_gbit_per_gpu("2 Tb/s RoCE per node", 8), 250.0);
  EXPECT_EQ(published_gbit_per_gpu("Ethernet between nodes", 8), std::nullopt);
}

TEST(PublishedRow, NamesGiveTheShape) {
  const PublishedRun run = read_published_run(row());
  EXPECT_EQ(run.request.model.num_params(), 8030261248);
  EXPECT_EQ(run.group, RowGroup::ModelParallel);
  EXPECT_EQ(run.request.training.checkpointing, Checkpointing::Full);
}

TEST(PublishedRow, ShardRanksThatAreNotStatedAreWhatOthersLeave) {
  json open = row();
  open["parallel"]["dp_shard"] = nullptr;
  EXPECT_EQ(read_published_run(open).request.strategy.dp_shard, 8);
}

TEST(PublishedRow, StagesOfTorchtitanCutTheLocalBatch) {
  json staged = row();
  staged["parallel"] = {{"dp_shard", 8}, {"tp", 1}, {"pp", 8}};
  staged["micro_batch"] = 32;
  const Training training = read_published_run(staged).request.training;
  EXPECT_EQ(training.micro_batch, 4);
  EXPECT_EQ(training.grad_accum, 8);
}

TEST(PublishedRow, Float8OfTorchtitanIsCompiled) {
  json eight = row();
  eight["precision"] = "float8 linears + float8 all-gather";
  const Training training = read_published_run(eight).request.training;
  EXPECT_EQ(training.precision.compute, ComputeType::Fp8);
  EXPECT_EQ(training.precision.gather_bytes, 1);
  EXPECT_TRUE(training.compiled);
}

TEST(PublishedRow, SaysWhatIsMissing) {
  const auto without = [](const char* key) {
    return [key] {
      json less = row();
      less.erase(key);
      read_published_run(less);
    };
  };
  expect_message(without("model"), {"no shape"});
  expect_message(without("parallel"), {"no parallel layout"});
  expect_message(without("gpu"), {"names no GPU"});
  expect_message(without("n_gpus"), {"no one number of GPUs"});
  expect_message(without("seq_len"), {"no sequence length"});
}

}  // namespace
}  // namespace accordion::plan
