// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include "accordion/checkpoint/full_state_dict.h"
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
using testing::TemporaryFolder;
using testing::train;
using testing::UnitNet;
using testing::whole;
using testing::with_nets;

/// Makes an optimizer; the same one each time.
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::Tensor>)>;

struct NamedOptimizer {
  std::string name;
  MakeOptimizer make;
};

template <class Type, class Options>
MakeOptimizer maker(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Type>(std::move(parameters), options);
  };
}

std::vector<NamedOptimizer> optimizers() {
  namespace optim = torch::optim;
  return {
      {"SGD", maker<optim::SGD>(optim::SGDOptions(1e-2).momentum(0.9))},
      {"Adam", maker<optim::Adam>(optim::AdamOptions(1e-2))},
      {"AdamWAmsgrad",
       maker<optim::AdamW>(optim::AdamWOptions(1e-2).amsgrad(true))},
      {"RMSprop",
       maker<optim::RMSprop>(
           optim::RMSpropOptions(1e-3).momentum(0.5).centered(true))},
      {"Adagrad", maker<optim::Adagrad>(optim::AdagradOptions(1e-2))},
  };
}

class TorchOptimizers : public ::testing::TestWithParam<NamedOptimizer> {};

TEST_P(TorchOptimizers, GoOnAsIfUnbroken) {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    const auto optimizer = GetParam().make(parameters(net));
    train(mesh, net, *optimizer, 0, 3);
    save_checkpoint(net, *optimizer, at("three"));
    train(mesh, net, *optimizer, 3, 5);
    save_checkpoint(net, *optimizer, at("unbroken"));
  });
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    const auto optimizer = GetParam().make(parameters(net));
    train(mesh, net, *optimizer, 7, 8);  // state that is to be replaced
    load_checkpoint(net, *optimizer, at("three"));
    train(mesh, net, *optimizer, 3, 5);
    save_checkpoint(net, *optimizer, at("resumed"));
  });
  CheckpointReader reader(at("unbroken"));
  int tensors = 0;
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (tensor.dtype == "F32") {
      EXPECT_EQ(whole(at("unbroken"), name), whole(at("resumed"), name))
          << name;
      ++tensors;
    }
  }
  EXPECT_GT(tensors, 14) << "14 parameters, and state";
  EXPECT_EQ(reader.index().values,
            CheckpointReader(at("resumed")).index().values);
}

INSTANTIATE_TEST_SUITE_P(
    All, TorchOptimizers, ::testing::ValuesIn(optimizers()),
    [](const ::testing::TestParamInfo<NamedOptimizer>& info) {
      return info.param.name;
    });

TEST(OptimizerState, StateMovesBetweenOursAndTorchs) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ours";
  with_nets(2, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, {.lr = 1e-2});
    train(mesh, net, optimizer, 0, 3);
    save_checkpoint(net, optimizer, path);
  });
  with_nets(3, [&](const DeviceMesh&, Unit<UnitNet>& net) {
    torch::optim::AdamW optimizer(parameters(net),
                                  torch::optim::AdamWOptions(1e-2));
    load_checkpoint(net, optimizer, path);
    const auto& state = static_cast<torch::optim::AdamWParamState&>(
        *optimizer.state().begin()->second);
    EXPECT_EQ(state.step(), 3);
  });
}

TEST(OptimizerState, AnotherOptimizersFieldsAreNamed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "adam";
  with_nets(2, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    torch::optim::Adam adam(parameters(net), torch::optim::AdamOptions(1e-2));
    train(mesh, net, adam, 0, 1);
    save_checkpoint(net, adam, path);
    torch::optim::SGD sgd(parameters(net),
                          torch::optim::SGDOptions(1e-2).momentum(0.9));
    EXPECT_THAT(
        message_of<CheckpointError>([&] { load_checkpoint(net, sgd, path); }),
        AllOf(HasSubstr("torch::optim::Adam saved the fields [exp_avg, "
                        "exp_avg_sq]"),
              HasSubstr("torch::optim::SGD with its options keeps "
                        "[momentum_buffer]"),
              HasSubstr("rank 1")));
  });
}

TEST(OptimizerState, UnknownOptimizerIsAnErrorThatNamesTheTrait) {
  with_nets(1, [](const DeviceMesh&, Unit<UnitNet>& net) {
    torch::optim::LBFGS optimizer(parameters(net));
    EXPECT_THAT(message_of<c10::ValueError>(
                    [&] { save_checkpoint(net, optimizer, "never"); }),
                AllOf(HasSubstr("LBFGS"), HasSubstr("OptimizerStateTraits")));
  });
}

TEST(OptimizerState, NewlyTrainableParametersStartAfresh) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "frozen";
  with_nets(2, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    net->head->weight.set_requires_grad(false);
    AdamW optimizer(net, {.lr = 1e-2});
    train(mesh, net, optimizer, 0, 2);
    save_checkpoint(net, optimizer, path);
  });
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, {.lr = 1e-2});
    train(mesh, net, optimizer, 0, 1);
    const LoadResult result = load_checkpoint(net, optimizer, path);
    EXPECT_THAT(result.fresh_state, ElementsAre("head.weight"));
    EXPECT_EQ(optimizer.moments("head.weight")->steps, 0);
    EXPECT_EQ(optimizer.moments("head.weight")->first.abs().sum().item<float>(),
              0.0F);
    EXPECT_EQ(optimizer.moments("head.bias")->steps, 2);
    train(mesh, net, optimizer, 2, 3);
    EXPECT_EQ(optimizer.moments("head.weight")->steps, 1);
    EXPECT_EQ(optimizer.moments("head.bias")->steps, 3);
  });
}

TEST(OptimizerState, TheFullStateIsWhatTheCheckpointHolds) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "checkpoint";
  std::map<std::string, std::vector<float>> visited;
  with_nets(3, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, {.lr = 1e-2});
    train(mesh, net, optimizer, 0, 2);
    save_checkpoint(net, optimizer, path);
    full_state_dict(
        net, optimizer,
        [&](const std::string& name, const torch::Tensor& tensor) {
          ASSERT_EQ(mesh.rank(), 0);
          const auto flat = tensor.to(torch::kFloat).contiguous().view({-1});
          visited.emplace(
              name,
              std::vector<float>(flat.const_data_ptr<float>(),
                                 flat.const_data_ptr<float>() + flat.numel()));
        });
  });
  CheckpointReader reader(path);
  std::size_t tensors = 0;
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (tensor.dtype == "F32") {
      EXPECT_EQ(visited.at(name), whole(path, name)) << name;
      ++tensors;
    }
  }
  EXPECT_EQ(tensors, 3U * 14U);
  EXPECT_EQ(visited.size(), 4U * 14U) << "and the steps";
  EXPECT_EQ(visited.at("optimizer/step/head.bias"), std::vector{2.0F});
}

TEST(OptimizerState, WhatAVisitorThrowsIsThrownOnRank0Alone) {
  with_nets(2, [&](const DeviceMesh& mesh, Unit<UnitNet>& net) {
    AdamW optimizer(net, {.lr = 1e-2});
    train(mesh, net, optimizer, 0, 1);
    int calls = 0;
    const auto call = [&] {
      full_state_dict(net, optimizer, [&](const auto&, const auto&) {
        ++calls;
        throw std::runtime_error("no ink");
      });
    };
    if (mesh.rank() == 0) {
      EXPECT_EQ(message_of<std::runtime_error>(call), "no ink");
    } else {
      call();
    }
    EXPECT_EQ(calls, mesh.rank() == 0 ? 1 : 0);
  });
}

}  // namespace
}  // namespace accordion
