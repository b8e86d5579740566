// SPDX-License-Identifier: BSD-3-Clause
//
// Moments of accordion::AdamW in checkpoints: in their dtype, and loaded by an
// optimizer that keeps them in another.
#include <gtest/gtest.h>

#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "tests/checkpoint/saved_nets.h"
#include "tests/support/temporary_folder.h"

namespace accordion {
namespace {

using testing::seeded;
using testing::TemporaryFolder;
using testing::train;
using testing::UnitNet;
using testing::with_nets;

AdamWOptions stored_as(c10::ScalarType dtype) {
  return {.lr = 1e-2, .moments_dtype = dtype};
}

TEST(MomentsDtype, IsWhatTheCheckpointHolds) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "bf16";
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, stored_as(torch::kBFloat16));
    train(mesh, net, optimizer, 0, 2);
    save_checkpoint(net, optimizer, path);
  });
  CheckpointReader reader(path);
  int moments = 0;
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (name.starts_with("optimizer/")) {
      EXPECT_EQ(tensor.dtype, "BF16") << name;
      ++moments;
    } else if (name.starts_with("model/")) {
      EXPECT_EQ(tensor.dtype, "F32") << name;
    }
  }
  EXPECT_EQ(moments, 2 * 14);
}

/// Saves moments of one dtype, loads them as another, and compares.
void expect_converted(c10::ScalarType saved, c10::ScalarType loaded) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "checkpoint";
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, stored_as(saved));
    train(mesh, net, optimizer, 0, 3);
    save_checkpoint(net, optimizer, path);
    auto other = seeded<Unit<UnitNet>>();
    fully_shard(other, mesh);
    AdamW into(other, stored_as(loaded));
    train(mesh, other, into, 7, 8);  // state that is to be replaced
    load_checkpoint(other, into, path);
    for (const LocalParameter& local : local_parameters(*net)) {
      const auto expected = optimizer.moments(local.name).value();
      const auto got = into.moments(local.name).value();
      EXPECT_EQ(got.first.scalar_type(), loaded);
      EXPECT_EQ(got.steps, 3);
      EXPECT_TRUE(torch::equal(got.first, expected.first.to(loaded)));
      EXPECT_TRUE(torch::equal(got.second, expected.second.to(loaded)));
    }
  });
}

TEST(MomentsDtype, MayDifferFromTheCheckpoints) {
  expect_converted(torch::kBFloat16, torch::kBFloat16);
  expect_converted(torch::kFloat, torch::kBFloat16);
  expect_converted(torch::kBFloat16, torch::kFloat);
}

TEST(MomentsDtype, StochasticRoundingGoesOnAsIfUnbroken) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "three";
  const AdamWOptions options{.lr = 1e-2,
                             .moments_dtype = torch::kBFloat16,
                             .stochastic_rounding = true,
                             .rounding_seed = 5};
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW unbroken(net, options);
    train(mesh, net, unbroken, 0, 3);
    save_checkpoint(net, unbroken, path);
    train(mesh, net, unbroken, 3, 6);
    auto other = seeded<Unit<UnitNet>>();
    fully_shard(other, mesh);
    AdamW resumed(other, options);
    load_checkpoint(other, resumed, path);
    train(mesh, other, resumed, 3, 6);
    for (const LocalParameter& local : local_parameters(*net)) {
      const auto expected = unbroken.moments(local.name).value();
      const auto got = resumed.moments(local.name).value();
      EXPECT_TRUE(torch::equal(got.first, expected.first)) << local.name;
      EXPECT_TRUE(torch::equal(got.second, expected.second)) << local.name;
    }
    for (const auto& name : {"head.weight", "block1.up.bias"}) {
      EXPECT_TRUE(torch::equal(full_parameter(*other, name),
                               full_parameter(*net, name)))
          << name;
    }
  });
}

}  // namespace
}  // namespace accordion
