// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checkpoint_saver.h"
#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/optim/parameters.h"
#include "tests/checkpoint/saved_nets.h"
#include "tests/support/temporary_folder.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_ranks;
using testing::seeded;
using testing::TemporaryFolder;
using testing::train;
using testing::UnitNet;
using testing::whole;
using testing::with_nets;

// ---- Names, shapes, dtypes -------------------------------------------------

TEST(SaveLoad, MissingAndUnexpectedNamesAreErrorsUnlessAllowed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "three-blocks";
  with_nets(2, [&](const DeviceMesh&, Unit<UnitNet>& net) {
    save_checkpoint(net, path);
  });
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto two = seeded<Unit<UnitNet>>(2);
    fully_shard(two, mesh);
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(two, path); }),
        AllOf(HasSubstr("holds 4 parameters or buffers that the module lacks"),
              HasSubstr("'block2.down.bias'"), HasSubstr("rank 0"),
              HasSubstr("rank 1")));
    const auto partial =
        load_checkpoint(two, path, LoadOptions{.allow_unexpected = true});
    EXPECT_EQ(partial.unexpected.size(), 4U);
    auto four = seeded<Unit<UnitNet>>(4);
    fully_shard(four, mesh);
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(four, path); }),
        AllOf(HasSubstr("lacks 4 parameters"), HasSubstr("'block3.up.weight'"),
              HasSubstr("allow_missing")));
    EXPECT_THAT(
        load_checkpoint(four, path, LoadOptions{.allow_missing = true}).missing,
        ElementsAre("block3.up.weight", "block3.up.bias", "block3.down.weight",
                    "block3.down.bias"));
  });
}

TEST(SaveLoad, AnotherShapeIsNamedBeforeAnythingChanges) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "linear";
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto wide = seeded<Unit<torch::nn::Linear>>(5, 3);
    fully_shard(wide, mesh);
    save_checkpoint(wide, path);
    auto narrow = seeded<Unit<torch::nn::Linear>>(4, 3);
    fully_shard(narrow, mesh);
    const auto before = full_parameter(*narrow, "bias");
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(narrow, path); }),
        AllOf(HasSubstr("'model/weight'"),
              HasSubstr("saved with shape [3, 5], but the module has [3, 4]")));
    EXPECT_TRUE(torch::equal(before, full_parameter(*narrow, "bias")));
  });
}

TEST(SaveLoad, ParametersOfAnotherDtypeAreConverted) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "fp32";
  torch::Tensor expected;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh);
    save_checkpoint(net, path);
    const auto weight = full_parameter(*net, "block1.up.weight");
    if (mesh.rank() == 0) {
      expected = weight.to(torch::kBFloat16);
    }
  });
  on_ranks(3, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    net->to(torch::kBFloat16);
    for (torch::Tensor& parameter : net->parameters()) {
      parameter.data().zero_();
    }
    fully_shard(net, mesh);
    load_checkpoint(net, path);
    EXPECT_TRUE(
        torch::equal(full_parameter(*net, "block1.up.weight"), expected));
  });
}

/// A linear map of many elements, to be saved and loaded in several parts.
Unit<torch::nn::Linear> large_linear(torch::Dtype dtype = torch::kFloat) {
  auto linear =
      seeded<Unit<torch::nn::Linear>>(torch::nn::LinearOptions(2048, 2048));
  linear->to(dtype);
  return linear;
}

TEST(SaveLoad, LargeParametersAreConvertedPartByPart) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "large";
  torch::Tensor expected;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto linear = large_linear();
    if (mesh.rank() == 0) {
      expected = linear->weight.detach().to(torch::kBFloat16);
    }
    fully_shard(linear, mesh);
    save_checkpoint(linear, path);
  });
  on_ranks(3, [&](const DeviceMesh& mesh) {
    auto linear = large_linear(torch::kBFloat16);
    fully_shard(linear, mesh);
    {
      const torch::NoGradGuard no_grad;
      for (const LocalParameter& local : local_parameters(*linear)) {
        local.piece.zero_();
      }
    }
    load_checkpoint(linear, path);
    EXPECT_TRUE(torch::equal(full_parameter(*linear, "weight"), expected));
  });
}

TEST(SaveLoad, WhatWasAssignedIsSavedAndALoadReplacesIt) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "assigned";
  with_nets(2, [&](const DeviceMesh&, Unit<UnitNet>& net) {
    net->head->bias.set_data(torch::full({3}, 5.0F));
    save_checkpoint(net, path);
    EXPECT_EQ(whole(path, "model/head.bias"),
              std::vector<float>({5.0F, 5.0F, 5.0F}));
    net->head->bias.set_data(torch::full({3}, 7.0F));
    load_checkpoint(net, path);
    EXPECT_EQ(full_parameter(*net, "head.bias").sum().item<float>(), 15.0F);
  });
}

TEST(SaveLoad, BuffersAndRandomNumbersGoOn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "batch-norm";
  torch::Tensor mean;
  torch::Tensor next;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    Unit<torch::nn::BatchNorm1d> norm(3);
    fully_shard(norm, mesh);
    torch::manual_seed(5);
    norm(torch::randn({8, 3})).sum().backward();
    save_checkpoint(norm, path);
    mean = norm->running_mean.clone();
    next = torch::randn({4});
  });
  on_ranks(1, [&](const DeviceMesh& mesh) {
    Unit<torch::nn::BatchNorm1d> norm(3);
    fully_shard(norm, mesh);
    torch::manual_seed(99);
    EXPECT_TRUE(load_checkpoint(norm, path).random_state);
    EXPECT_TRUE(torch::equal(norm->running_mean, mean));
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
    EXPECT_TRUE(torch::equal(torch::randn({4}), next));
  });
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Unit<torch::nn::BatchNorm1d> norm(3);
    fully_shard(norm, mesh);
    EXPECT_FALSE(load_checkpoint(norm, path).random_state);
  });
}

TEST(SaveLoad, IgnoredParametersAreWrittenByAllRanksTogether) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ignored";
  FsdpOptions options;
  options.placement = [](const ParameterInfo& parameter) {
    return parameter.name == "head.weight" ? ParameterPlacement::Ignore
                                           : ParameterPlacement::Shard;
  };
  torch::Tensor saved;
  on_ranks(3, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh, options);
    save_checkpoint(net, path);
    if (mesh.rank() == 0) {
      saved = net->head->weight.detach().clone();
    }
  });
  EXPECT_EQ(CheckpointReader(path).find("model/head.weight")->ranges.size(),
            3U);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh, options);
    {
      const torch::NoGradGuard no_grad;
      net->head->weight.zero_();
    }
    load_checkpoint(net, path);
    EXPECT_TRUE(torch::equal(net->head->weight, saved));
  });
}

// ---- Saving ----------------------------------------------------------------

TEST(SaveLoad, ACheckpointIsNeverOverwritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "once";
  with_nets(2, [&](const DeviceMesh&, Unit<UnitNet>& net) {
    save_checkpoint(net, path);
    EXPECT_THAT(
        message_of<CheckpointError>([&] { save_checkpoint(net, path); }),
        AllOf(HasSubstr("rank 0"), HasSubstr("exists already")));
  });
}

TEST(SaveLoad, ASaveInTheBackgroundHoldsWhatWasThereWhenItBegan) {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  with_nets(2, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, {.lr = 1e-2});
    const auto access = OptimizerStateTraits<AdamW>::access(optimizer, *net);
    CheckpointSaver saver(*net, access.get());
    train(mesh, net, optimizer, 0, 2);
    save_checkpoint(net, optimizer, at("sync"));
    bool called = false;
    saver.start({.path = at("async"),
                 .values = {{"step", std::int64_t{2}}},
                 .after_commit = [&] { called = true; }});
    std::optional<SaveResult> result;
    for (int step = 2; !result; ++step) {
      train(mesh, net, optimizer, step, step + 1);
      result = saver.poll();
    }
    EXPECT_EQ(result->error, "");
    EXPECT_GT(result->bytes, 0);
    EXPECT_FALSE(saver.in_flight());
    EXPECT_EQ(called, mesh.rank() == 0);
  });
  CheckpointReader reader(at("sync"));
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (tensor.dtype == "F32") {
      EXPECT_EQ(whole(at("async"), name), whole(at("sync"), name)) << name;
    }
  }
}

TEST(SaveLoad, WhatChangesWhileASaveWritesIsNotInIt) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "large";
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto linear = large_linear();
    fully_shard(linear, mesh);
    {
      const torch::NoGradGuard no_grad;
      for (const LocalParameter& local : local_parameters(*linear)) {
        local.piece.fill_(1.0F);
      }
    }
    CheckpointSaver saver(*linear, nullptr);
    saver.start({.path = path});
    {
      const torch::NoGradGuard no_grad;
      for (const LocalParameter& local : local_parameters(*linear)) {
        local.piece.fill_(2.0F);
      }
    }
    EXPECT_EQ(saver.finish().error, "");
  });
  EXPECT_THAT(whole(path, "model/weight"), ::testing::Each(1.0F));
}

TEST(SaveLoad, WhatFailsBehindTheCommitIsToldAndTheCheckpointIsThere) {
  const TemporaryFolder folder;
  with_nets(2, [&](const DeviceMesh&, Unit<UnitNet>& net) {
    CheckpointSaver saver(*net, nullptr);
    const auto result =
        saver.save({.path = folder.path() / "first", .after_commit = [] {
                      throw std::runtime_error("no ink");
                    }});
    EXPECT_EQ(result.error, "");
    EXPECT_THAT(result.after_commit_error, HasSubstr("no ink"));
    load_checkpoint(net, result.path);
    EXPECT_EQ(saver.save({.path = folder.path() / "second"}).error, "");
  });
}

// ---- What a load costs -----------------------------------------------------

TEST(SaveLoad, EachRankReadsTheBlocksOfWhatItOwns) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "large";
  constexpr std::int64_t kBytes = std::int64_t{4} * 2048 * 2048;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto linear = large_linear();
    fully_shard(linear, mesh);
    save_checkpoint(linear, path);
  });
  on_ranks(4, [&](const DeviceMesh& mesh) {
    auto linear = large_linear();
    fully_shard(linear, mesh);
    EXPECT_LE(load_checkpoint(linear, path).bytes_read,
              kBytes / 4 + 4 * kChecksumBlockBytes);
  });
}

/// A line of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) {
      return std::stoll(line.substr(name.size())) * 1024;
    }
  }
  return 0;
}

TEST(SaveLoad, LoadingTakesNoMemoryButABuffer) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "large";
  on_ranks(1, [&](const DeviceMesh& mesh) {
    auto linear =
        seeded<Unit<torch::nn::Linear>>(torch::nn::LinearOptions(4096, 4096));
    fully_shard(linear, mesh);
    AdamW optimizer(linear, {});
    linear(torch::ones({1, 4096})).sum().backward();
    optimizer.step();
    save_checkpoint(linear, optimizer, path);
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak counts anew
    const std::int64_t before = status_bytes("VmHWM:");
    load_checkpoint(linear, optimizer, path);
    EXPECT_LE(status_bytes("VmHWM:") - before, 8 << 20)
        << "192 MiB were loaded";
  });
}

}  // namespace
}  // namespace accordion
