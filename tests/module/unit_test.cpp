// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/unit.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/serialize.h>

#include "tests/module/recording_hooks.h"

namespace accordion {
namespace {

using testing::RecordingHooks;

struct PairImpl : torch::nn::Cloneable<PairImpl> {
  explicit PairImpl(double factor = 1.0) : factor(factor) { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::full({1}, factor));
  }
  std::tuple<torch::Tensor, int> forward(const torch::Tensor& a,
                                         std::vector<torch::Tensor> b,
                                         bool fail = false) {
    TORCH_CHECK(!fail, "asked to fail");
    return {weight * (a + b.at(0)), 7};
  }
  double factor;
  torch::Tensor weight;
};
TORCH_MODULE(Pair);

struct ConstImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) const noexcept { return x; }
};
TORCH_MODULE(Const);

template <class U>
std::shared_ptr<RecordingHooks> attach(U& unit) {
  auto hooks = std::make_shared<RecordingHooks>();
  unit->attach(hooks);
  return hooks;
}

TEST(Unit, IsThePlainModuleWithoutHooks) {
  Unit<Pair> unit(3.0);
  const auto [y, n] = unit(torch::ones({1}), std::vector{torch::ones({1})});
  EXPECT_EQ(y.item<float>(), 6.0F);
  EXPECT_EQ(n, 7);
  EXPECT_EQ(unit->named_parameters().keys(),
            std::vector<std::string>{"weight"});
}

TEST(Unit, HooksSeeAndReplaceInputsAndOutputs) {
  Unit<Pair> unit(3.0);
  const auto hooks = attach(unit);
  const auto x = torch::ones({1});
  const auto [y, n] = unit->forward(x, {torch::ones({1})}, false);
  EXPECT_EQ(hooks->inputs, 2);
  EXPECT_EQ(hooks->outputs, 1);
  EXPECT_EQ(y.item<float>(), 13.0F);  // 3 * (2 + 2) + 1
  EXPECT_EQ(x.item<float>(), 1.0F) << "the caller's tensor was replaced";
}

TEST(Unit, DefaultArgumentsSurviveTheHolder) {
  Unit<Pair> unit(1.0);
  const auto hooks = attach(unit);
  auto x = torch::ones({1});
  EXPECT_EQ(std::get<0>(unit(x, std::vector{x})).item<float>(), 5.0F);
  EXPECT_EQ(x.item<float>(), 1.0F);
}

TEST(Unit, TellsTheHooksThatForwardThrew) {
  Unit<Pair> unit(1.0);
  const auto hooks = attach(unit);
  EXPECT_THROW(unit(torch::ones({1}), std::vector{torch::ones({1})}, true),
               c10::Error);
  EXPECT_EQ(hooks->threw, 1);
  EXPECT_EQ(hooks->outputs, -1);
}

TEST(Unit, WrapsConstAndNoexceptForwards) {
  Unit<Const> unit;
  const auto hooks = attach(unit);
  EXPECT_EQ(unit(torch::ones({1})).item<float>(), 3.0F);
}

TEST(Unit, RunsHooksInsideSequential) {
  Unit<torch::nn::Linear> inner(4, 2);
  const auto hooks = attach(inner);
  torch::nn::Sequential net(torch::nn::Linear(3, 4), inner);
  net->forward(torch::ones({5, 3}));
  EXPECT_EQ(hooks->inputs, 1);
  EXPECT_EQ(hooks->outputs, 1);
  EXPECT_TRUE(net->named_parameters().contains("1.weight"));
}

TEST(Unit, WrapsStockModulesWithDefaultArguments) {
  Unit<torch::nn::TransformerEncoderLayer> layer(
      torch::nn::TransformerEncoderLayerOptions(8, 2));
  const auto hooks = attach(layer);
  EXPECT_EQ(layer(torch::ones({3, 1, 8})).sizes(), (at::IntArrayRef{3, 1, 8}));
  EXPECT_EQ(hooks->inputs, 1);

  torch::nn::Sequential net(layer);
  net->forward(torch::ones({3, 1, 8}));
  EXPECT_EQ(hooks->outputs, 1);
}

TEST(Unit, ClonesToADetachedUnit) {
  Unit<Pair> unit(3.0);
  const auto clone = unit->clone();
  auto* copy = dynamic_cast<Unit<Pair>::Impl*>(clone.get());
  ASSERT_NE(copy, nullptr) << "the clone is not a unit";
  EXPECT_EQ(copy->weight.item<float>(), 3.0F);
  EXPECT_FALSE(copy->weight.is_same(unit->weight));
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no c10::ValueError";
}

TEST(Unit, SaveLoadCloneAndToOfAShardedModuleNameTheAlternative) {
  Unit<Pair> unit(1.0);
  torch::serialize::OutputArchive out;
  unit->save(out);
  attach(unit);
  EXPECT_NE(error_of([&] { unit->save(out); }).find("full_parameter"),
            std::string::npos);
  torch::serialize::InputArchive in;
  EXPECT_NE(error_of([&] { unit->load(in); }).find("local_parameters"),
            std::string::npos);
  EXPECT_NE(error_of([&] { unit->clone(); }).find("Clone before"),
            std::string::npos);
  EXPECT_NE(error_of([&] { unit->to(torch::kDouble); }).find("precision"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion
