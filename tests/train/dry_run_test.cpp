// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/dry_run.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/memory_tracker.h"
#include "accordion/optim/adamw.h"
#include "accordion/train/config_options.h"
#include "accordion/train/optimizer_options.h"
#include "accordion/train/plan_request.h"
#include "accordion/train/training_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrainConfig config_with(const std::vector<std::string>& more) {
  return parse_config("", "test.toml",
                      testing::with(testing::parity_keys("tiny-gqa"), more));
}

class DryRuns : public ::testing::TestWithParam<std::vector<std::string>> {};

// Collectives, bytes, schedules and state memory: of few ranks, of a number
// that divides nothing, and of thousands.
TEST_P(DryRuns, AreWhatWasPlanned) {
  for (const int num_ranks : {1, 2, 6, 4096}) {
    for (const int rank : {0, num_ranks - 1}) {
      const DryRun run = dry_run(config_with(GetParam()), num_ranks, rank);
      EXPECT_THAT(differences(run), IsEmpty())
          << "rank " << rank << " of " << num_ranks << '\n'
          << to_table(run);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, DryRuns,
    ::testing::Values(
        std::vector<std::string>{},
        std::vector<std::string>{"fsdp.param_dtype=bf16", "fsdp.prefetch=3"},
        std::vector<std::string>{"fsdp.param_dtype=fp16",
                                 "fsdp.reduce_dtype=fp16"},
        std::vector<std::string>{"fsdp.strategy=shard_grad_op",
                                 "train.grad_accumulation=3"},
        std::vector<std::string>{"fsdp.strategy=shard_optimizer",
                                 "fsdp.param_dtype=bf16",
                                 "train.grad_accumulation=5"},
        std::vector<std::string>{"fsdp.strategy=no_shard"},
        std::vector<std::string>{"fsdp.strategy=no_shard",
                                 "fsdp.param_dtype=bf16",
                                 "train.grad_accumulation=2"},
        std::vector<std::string>{"fsdp.min_shard_numel=1000",
                                 "fsdp.param_dtype=bf16"},
        std::vector<std::string>{
            "fsdp.accumulation=unsharded", "fsdp.keep_parameters=true",
            "fsdp.param_dtype=bf16", "train.grad_accumulation=4"},
        std::vector<std::string>{"memory.activation_checkpointing=full"},
        std::vector<std::string>{"memory.activation_checkpointing=2",
                                 "memory.chunked_loss_tokens=64"},
        std::vector<std::string>{"memory.activation_checkpointing=selective",
                                 "fsdp.param_dtype=bf16"},
        std::vector<std::string>{"memory.optimizer_in_backward=true",
                                 "optimizer.moments_dtype=bf16"}));

TEST(DryRun, HybridIsWhatWasPlanned) {
  for (const char* accumulation :
       {"sharded", "unsharded", "deferred_all_reduce"}) {
    for (const int num_ranks : {4, 4096, 16384}) {
      const TrainConfig config =
          config_with({"fsdp.strategy=hybrid", "fsdp.replicas=2",
                       "train.grad_accumulation=3", "fsdp.param_dtype=bf16",
                       std::string("fsdp.accumulation=") + accumulation});
      const DryRun run = dry_run(config, num_ranks);
      EXPECT_THAT(differences(run), IsEmpty()) << accumulation << '\n'
                                               << to_table(run);
      EXPECT_GT(run.executed_step().all_reduce.calls, 0);
    }
  }
}

TEST(DryRun, SecondCopyOfAHostIsWhatWasPlanned) {
  const DryRun run =
      dry_run(config_with({"fsdp.reshard_to_ranks=8"}), 4096, 4000);
  EXPECT_THAT(differences(run), IsEmpty()) << to_table(run);
}

TEST(DryRun, HoldsTheActivationsOfARun) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{},
        {"fsdp.param_dtype=bf16"},
        {"fsdp.param_dtype=bf16", "memory.chunked_loss_tokens=64"},
        {"memory.activation_checkpointing=full"},
        {"memory.activation_checkpointing=selective"}}) {
    const TrainConfig config = config_with(keys);
    const DryRun dry = dry_run(config, 4);
    const Rendezvous rendezvous{.world_size = 4, .local_world_size = 4};
    const DeviceMesh mesh = DeviceMesh::connect(
        rendezvous, {.backend = "fake", .axes = mesh_axes(config, rendezvous)});
    MemoryTracker tracker;
    TrainingModel model(open_model_config(config), config, mesh);
    AdamW optimizer(model.module(), adamw_options(config));
    tracker.watch(model.module(),
                  {.optimizer_bytes = [&] { return optimizer.held_bytes(); }});
    for (int step = 0; step < 2; ++step) {
      (void)tracker.take_peak();
      Batch batch;
      batch.inputs.assign(
          static_cast<std::size_t>(config.train.batch_size * 128), 65);
      batch.targets = batch.inputs;
      const MemoryPhaseScope forward(tracker, MemoryPhase::Forward);
      const at::Tensor loss = model.loss(batch, 1024.0).loss;
      const MemoryPhaseScope backward(tracker, MemoryPhase::Backward);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    const MemoryByKind real = tracker.take_peak().each();
    EXPECT_EQ(dry.executed.sharded_parameters, real.sharded_parameters);
    EXPECT_EQ(dry.executed.unsharded_parameters, real.unsharded_parameters);
    EXPECT_EQ(dry.executed.gradients, real.gradients);
    EXPECT_EQ(dry.executed.optimizer, real.optimizer);
    EXPECT_EQ(dry.executed.communication_buffers, real.communication_buffers);
    // Kernels have scratch of their own while they compute.
    EXPECT_LE(dry.executed.activations, real.activations);
    EXPECT_GE(static_cast<double>(dry.executed.activations),
              0.97 * static_cast<double>(real.activations));
  }
}

/// A model that no machine that runs tests could hold.
std::string large_model(const std::filesystem::path& folder) {
  const auto model = folder / "70b.json";
  std::ofstream(model) << R"({"model_type": "llama", "hidden_size": 8192,
      "intermediate_size": 28672, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8,
      "vocab_size": 128256, "max_position_embeddings": 8192,
      "tie_word_embeddings": false})";
  return model.string();
}

TEST(DryRun, FitsAnyModel) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = parse_config(
      "", "test.toml",
      std::vector<std::string>{"model.config=" + large_model(folder.path()),
                               "data.path=none", "data.seq_len=8192",
                               "train.batch_size=1", "fsdp.param_dtype=bf16"});
  const DryRun run = dry_run(config, 512);
  EXPECT_THAT(differences(run), IsEmpty()) << to_table(run);
  EXPECT_NEAR(static_cast<double>(run.executed.optimizer),
              8.0 * static_cast<double>(run.parameters) / 512,
              0.01 * 8.0 * static_cast<double>(run.parameters) / 512);
}

/// What a rank sends for collectives that all go around a ring of `ranks`.
double ring_bytes(const CollectiveTotals& totals, double ranks) {
  const double share = (ranks - 1) / ranks;
  return share * static_cast<double>(totals.all_gather.bytes +
                                     totals.reduce_scatter.bytes +
                                     2 * totals.all_reduce.bytes);
}

// The planner knows no layouts: what it is off by is padding.
TEST(DryRun, AgreesWithThePlanner) {
  const testing::TemporaryFolder folder;
  const std::string model = large_model(folder.path());
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{},
        {"fsdp.strategy=shard_grad_op", "train.grad_accumulation=3"},
        {"fsdp.strategy=no_shard", "fsdp.accumulation=unsharded",
         "train.grad_accumulation=2"},
        {"memory.activation_checkpointing=full", "fsdp.prefetch=3"}}) {
    const TrainConfig config = parse_config(
        "", "test.toml",
        testing::with({"model.config=" + model, "data.path=none",
                       "data.seq_len=4096", "train.batch_size=1",
                       "fsdp.param_dtype=bf16", "fsdp.reduce_dtype=bf16"},
                      keys));
    const DryRun run = dry_run(config, 64);
    const std::vector<MeshAxis> axes = {{.name = "shard", .size = 64}};
    const plan::PlanRequest request =
        plan_request(LlamaConfig::from_file(model), config, axes,
                     plan::parse_cluster("8x8xH100-IB"));
    const plan::DeviceMemory state = plan::state_memory(request);
    const auto near = [](std::int64_t executed, double planned) {
      EXPECT_NEAR(static_cast<double>(executed), planned, 0.005 * planned);
    };
    near(run.executed.sharded_parameters, state.sharded_parameters);
    near(run.executed.gradients, state.gradients);
    near(run.executed.optimizer, state.optimizer);
    const plan::TimePlan time = plan::make_plan(request).time;
    const CollectiveTotals step = run.executed_step();
    EXPECT_EQ(
        static_cast<double>(step.all_gather.calls + step.reduce_scatter.calls +
                            step.all_reduce.calls),
        time.num_collectives);
    EXPECT_NEAR(ring_bytes(step, 64), time.collective_bytes,
                0.005 * time.collective_bytes);
  }
}

TEST(DryRun, NamesWhatDiffers) {
  DryRun run = dry_run(config_with({}), 4);
  run.passes[0].executed.all_gather.bytes += 1;
  run.passes[0].same_schedule = false;
  run.executed.optimizer += run.executed.optimizer / 20;
  EXPECT_THAT(differences(run),
              ElementsAre(HasSubstr("all-gathers of the step"),
                          HasSubstr("another schedule"),
                          HasSubstr("optimizer: executed")));
}

TEST(DryRun, RefusesWhatHasNoDryForm) {
  const auto message = [](const TrainConfig& config, int num_ranks) {
    try {
      (void)dry_run(config, num_ranks);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(config_with({"memory.offload=optimizer",
                                   "checkpoint.async=false"}),
                      2),
              HasSubstr("memory.offload=none"));
  EXPECT_THAT(message(config_with({"memory.offload_activations=true",
                                   "memory.activation_checkpointing=full"}),
                      2),
              HasSubstr("memory.offload_activations=false"));
  EXPECT_THAT(message(config_with({}), 0), HasSubstr("rank 0 of 0"));
}

}  // namespace
}  // namespace accordion
