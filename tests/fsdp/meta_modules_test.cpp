// SPDX-License-Identifier: BSD-3-Clause
// What no unit holds of a module that was built on meta: parameters that are
// left alone, and buffers.
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/materialize.h"
#include "accordion/module/meta_init.h"
#include "tests/fsdp/expect_in.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;

/// A table that follows from the configuration, one that a callback fills, and
/// a mask that is registered nowhere.
struct TablesImpl : torch::nn::Module, BuffersFromConfig {
  TablesImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 5));
    cosine = register_buffer("cosine", torch::empty({6}));
    offsets = register_buffer("offsets", torch::zeros({6}, torch::kLong));
    reset_buffers();
  }
  void reset_buffers() override {
    cosine.copy_(torch::arange(6).cos());
    mask = torch::ones({4, 4}).tril();
  }
  torch::Tensor forward(torch::Tensor x) {
    return linear(x).sum() + (cosine * offsets).sum() + mask.sum();
  }
  torch::nn::Linear linear{nullptr};
  torch::Tensor cosine, offsets, mask;
};
TORCH_MODULE(Tables);

struct OuterImpl : torch::nn::Module {
  OuterImpl() {
    tables = register_module("tables", Unit<Tables>());
    shift = register_buffer("shift", torch::zeros({2}));
  }
  torch::Tensor forward(torch::Tensor x) { return tables(x) + shift.sum(); }
  Unit<Tables> tables{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(Outer);

Unit<Outer> on_meta() {
  const MetaInit meta;
  return Unit<Outer>();
}

FsdpOptions filling_shift() {
  return {.init = {.seed = 3,
                   .fill_buffer = [](const std::string& name,
                                     const at::Tensor& buffer) {
                     if (name != "shift") {
                       return false;
                     }
                     buffer.fill_(0.5);
                     return true;
                   }}};
}

void on_three(
    const std::function<void(Unit<Outer>&, const DeviceMesh&)>& body) {
  std::vector<Unit<Outer>> nets{on_meta(), on_meta(), on_meta()};
  on_ranks(3, [&](const DeviceMesh& mesh) {
    body(nets[static_cast<std::size_t>(mesh.rank())], mesh);
  });
}

TEST(MetaModules, BuffersAreWholeAndRightOnEveryRank) {
  on_three([](Unit<Outer>& net, const DeviceMesh& mesh) {
    assign_data(net->tables->offsets, torch::arange(6));  // as if loaded
    fully_shard(net, mesh, filling_shift());
    EXPECT_TRUE(torch::equal(net->tables->cosine, torch::arange(6).cos()));
    EXPECT_TRUE(torch::equal(net->tables->offsets, torch::arange(6)));
    EXPECT_TRUE(torch::equal(net->tables->mask, torch::ones({4, 4}).tril()));
    EXPECT_TRUE(torch::equal(net->shift, torch::full({2}, 0.5)));
    net(torch::ones({2, 3})).backward();
  });
}

TEST(MetaModules, BuffersThatNobodyFillsAreNamedOnEveryRank) {
  on_three([](Unit<Outer>& net, const DeviceMesh& mesh) {
    testing::expect_in(
        testing::message_of<c10::ValueError>([&] { fully_shard(net, mesh); }),
        "1 buffer has no values: 'shift' [2]");
  });
}

TEST(MetaModules, IgnoredParametersStartAsWithMaterialize) {
  auto expected = on_meta();
  materialize(expected, filling_shift().init);
  on_three([&](Unit<Outer>& net, const DeviceMesh& mesh) {
    FsdpOptions options = filling_shift();
    options.placement = [](const ParameterInfo& parameter) {
      return parameter.name.ends_with("bias") ? ParameterPlacement::Ignore
                                              : ParameterPlacement::Shard;
    };
    fully_shard(net, mesh, options);
    EXPECT_TRUE(torch::equal(net->tables->linear->bias,
                             expected->tables->linear->bias));
    EXPECT_TRUE(torch::equal(full_parameter(*net, "tables.linear.weight"),
                             expected->tables->linear->weight));
    net(torch::ones({2, 3})).backward();
  });
}

}  // namespace
}  // namespace accordion
