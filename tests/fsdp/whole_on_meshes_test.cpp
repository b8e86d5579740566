// SPDX-License-Identifier: BSD-3-Clause
// Whole parameters where more ranks than one hold the same piece: replicas of a
// hybrid mesh, neighbours that keep a copy between forward and backward, small
// parameters that every rank has.
#include <map>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;
using OddNet = Unit<testing::UnitOddNet>;
using PlainNet = testing::PlainOddNet;

constexpr int kRanks = 4;
constexpr int kRowsOfRank = 12;

struct MeshCase {
  const char* label;
  std::vector<MeshAxis> axes;
  FsdpOptions options;
};

/// Replicates biases and what is as small; frozen ones among them.
std::vector<MeshCase> mesh_cases() {
  constexpr std::int64_t kSmall = testing::kHidden + 1;
  return {
      {"hybrid", {{"replicate", 2}, {"shard", 2}}, {.min_shard_numel = kSmall}},
      {"hybrid, whole copies",
       {{"replicate", 2}, {"shard", 2}},
       {.strategy = Strategy::ShardOptimizer, .min_shard_numel = kSmall}},
      {"neighbours keep a copy",
       {{"shard", kRanks}},
       {.reshard_to_ranks = 2, .min_shard_numel = kSmall}}};
}

/// Runs `body` on four ranks of each case.
void on_cases(const std::function<void(OddNet&, const DeviceMesh&)>& body) {
  for (const MeshCase& mesh_case : mesh_cases()) {
    std::vector<OddNet> nets;
    for (int rank = 0; rank < kRanks; ++rank) {
      nets.push_back(seeded<OddNet>());
    }
    testing::on_meshes(
        make_local_meshes(mesh_case.axes, std::chrono::seconds(30)),
        [&](const DeviceMesh& mesh) {
          SCOPED_TRACE(mesh_case.label);
          OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
          fully_shard(net, mesh, mesh_case.options);
          body(net, mesh);
        });
  }
}

torch::Tensor logits_of(OddNet& net) {
  const torch::NoGradGuard no_grad;
  return net(tokens_of(0, kRowsOfRank));
}

/// Of this rank's rows; the mean over ranks is the loss of all rows.
torch::Tensor loss_of_mine(OddNet& net, const DeviceMesh& mesh) {
  const auto mine = [&](const torch::Tensor& batch) {
    return rows_of(batch, mesh.rank(), kRanks);
  };
  return class_loss(net(mine(tokens_of(0, kRowsOfRank))),
                    mine(classes_of(0, kRowsOfRank)));
}

/// Element j of the i-th parameter becomes a formula in i and j.
template <class Net>
void write(Net& net) {
  const torch::NoGradGuard no_grad;
  double number = 1;
  for (auto& parameter : net->parameters()) {
    const auto j = torch::arange(parameter.numel(), torch::kFloat);
    parameter.copy_((torch::sin(j * number++) * 0.2).view(parameter.sizes()));
  }
}

/// A single process with the values of `write`, and gradients of all rows.
PlainNet written_net() {
  auto plain = seeded<PlainNet>();
  write(plain);
  class_loss(plain(tokens_of(0, kRowsOfRank)), classes_of(0, kRowsOfRank))
      .backward();
  return plain;
}

std::int64_t numel_of(const torch::nn::Module& module) {
  std::int64_t numel = 0;
  for (const auto& parameter : module.parameters()) {
    numel += parameter.numel();
  }
  return numel;
}

void expect_values_of(const PlainNet& plain, OddNet& net) {
  for (const auto& item : plain->named_parameters()) {
    if (item.key() != "embed.weight") {  // tied to head_weight
      EXPECT_TRUE(torch::equal(full_parameter(*net, item.key()), item.value()))
          << item.key();
    }
  }
}

void expect_close(const torch::Tensor& got, const torch::Tensor& expected,
                  const std::string& what) {
  EXPECT_TRUE(torch::allclose(got, expected, 1e-5, 1e-6))
      << what << ": " << (got - expected).abs().max();
}

/// What forward computes, and the gradients that reach each replica.
void expect_steps_of(PlainNet plain, OddNet& net, const DeviceMesh& mesh) {
  for (int repeat = 0; repeat < 2; ++repeat) {  // recorded, then replayed
    net->zero_grad();
    loss_of_mine(net, mesh).backward();
    for (const auto& item : plain->named_parameters()) {
      if (item.key() != "embed.weight" && item.value().grad().defined()) {
        expect_close(full_gradient(*net, item.key()), item.value().grad(),
                     item.key());
      }
    }
  }
  const torch::NoGradGuard no_grad;
  expect_close(logits_of(net), plain(tokens_of(0, kRowsOfRank)), "logits");
}

TEST(WholeOnMeshes, ValuesAreThoseOfTheWholeModule) {
  const auto plain = seeded<PlainNet>();
  on_cases([&](OddNet& net, const DeviceMesh& mesh) {
    expect_values_of(plain, net);
    std::map<std::string, torch::Tensor> visited;
    full_parameters(net, [&](const std::string& name, const torch::Tensor& p) {
      EXPECT_TRUE(torch::equal(p, plain->named_parameters()[name])) << name;
      visited.emplace(name, p);
    });
    const std::size_t all = plain->parameters().size() - 1;  // one is tied
    EXPECT_EQ(visited.size(), mesh.rank() == 0 ? all : 0);
    const SummonFullParameters whole(net);
    for (const auto& item : plain->named_parameters()) {
      EXPECT_TRUE(
          torch::equal(net->named_parameters()[item.key()], item.value()))
          << item.key();
    }
  });
}

TEST(WholeOnMeshes, WhatEachRankWritesReachesAllReplicas) {
  const auto expected = written_net();
  on_cases([&](OddNet& net, const DeviceMesh& mesh) {
    loss_of_mine(net, mesh).backward();
    {
      const SummonFullParameters whole(net);
      write(net);
    }
    expect_values_of(expected, net);
    expect_steps_of(expected, net, mesh);
  });
}

TEST(WholeOnMeshes, WhatRankZeroWritesReachesAllReplicas) {
  const auto expected = written_net();
  on_cases([&](OddNet& net, const DeviceMesh& mesh) {
    {
      const SummonFullParameters whole(net, {.rank0_only = true});
      EXPECT_EQ(numel_of(*net) == numel_of(*expected), mesh.rank() == 0);
      if (mesh.rank() == 0) {
        write(net);
      }
    }
    expect_values_of(expected, net);
    expect_steps_of(expected, net, mesh);
  });
}

TEST(WholeOnMeshes, GradientsAreTheMeanOfAllRanksAndAreTakenOver) {
  auto plain = seeded<PlainNet>();
  class_loss(plain(tokens_of(0, kRowsOfRank)), classes_of(0, kRowsOfRank))
      .backward();
  on_cases([&](OddNet& net, const DeviceMesh& mesh) {
    for (const bool rank0_only : {false, true}) {
      net->zero_grad();
      loss_of_mine(net, mesh).backward();
      {
        const SummonFullParameters whole(
            net, {.rank0_only = rank0_only, .with_gradients = true});
        if (!rank0_only || mesh.rank() == 0) {
          for (const auto& item : plain->named_parameters()) {
            auto parameter = net->named_parameters()[item.key()];
            ASSERT_EQ(parameter.grad().defined(), item.value().requires_grad())
                << item.key();
            if (item.value().grad().defined()) {
              expect_close(parameter.grad(), item.value().grad(), item.key());
            }
          }
          net->tied.mutable_grad().mul_(3);
          net->scale.mutable_grad().mul_(3);
        }
      }
      for (const char* name : {"head_weight", "scale"}) {
        expect_close(full_gradient(*net, name),
                     plain->named_parameters()[name].grad() * 3, name);
      }
    }
  });
}

// The copy of neighbours would be read again by the forward that follows.
TEST(WholeOnMeshes, NoCopyFromBeforeOutlivesWhatIsWritten) {
  const auto expected = written_net();
  on_cases([&](OddNet& net, const DeviceMesh& mesh) {
    const auto forget = loss_of_mine(net, mesh);  // whose backward never comes
    set_reshard_after_forward(*net, false);
    (void)logits_of(net);  // and stays whole
    {
      const SummonFullParameters whole(net);
      write(net);
    }
    set_reshard_after_forward(*net, true);
    expect_values_of(expected, net);
    expect_steps_of(expected, net, mesh);
  });
}

}  // namespace
}  // namespace accordion
