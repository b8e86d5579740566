// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include "accordion/module/unit.h"
#include "tests/module/recording_hooks.h"

namespace accordion {
namespace {

using testing::RecordingHooks;

struct BaseImpl : torch::nn::Module {
  torch::Tensor inherited(torch::Tensor x) { return x * 5; }
};

struct CodecImpl : BaseImpl {
  torch::Tensor forward(torch::Tensor x) { return x; }
  torch::Tensor encode(const torch::Tensor& x, double by = 3) { return x * by; }
  std::pair<torch::Tensor, int> decode(torch::Tensor x,
                                       std::optional<torch::Tensor> y) const {
    return {y ? x + *y : x, 7};
  }
  torch::Tensor quick(torch::Tensor x) const noexcept { return x; }
  void store(torch::Tensor x, torch::Tensor& into) {
    ++stores;
    into = x;
  }
  torch::Tensor fail(torch::Tensor) { TORCH_CHECK(false, "asked to fail"); }
  torch::Tensor same(torch::Tensor x) { return x; }
  torch::Tensor same(int n) { return torch::full({1}, n); }
  int stores = 0;
};
TORCH_MODULE(Codec);

struct UnitCall : ::testing::Test {
  UnitCall() { unit->attach(hooks); }
  Unit<Codec> unit;
  std::shared_ptr<RecordingHooks> hooks = std::make_shared<RecordingHooks>();
  torch::Tensor one = torch::ones({1});
};

TEST_F(UnitCall, RunsTheHooksAroundAnotherMemberFunction) {
  EXPECT_EQ(unit.call(&CodecImpl::encode, one, 3).item<float>(), 7.0F);
  EXPECT_EQ(hooks->inputs, 1);
  EXPECT_EQ(hooks->outputs, 1);
  EXPECT_EQ(one.item<float>(), 1.0F) << "the caller's tensor was replaced";
}

TEST_F(UnitCall, IsThePlainFunctionWithoutHooks) {
  unit->attach(nullptr);
  EXPECT_EQ(unit.call(&CodecImpl::encode, one, 3).item<float>(), 3.0F);
}

TEST_F(UnitCall, TakesConstAndNoexceptFunctionsOnConstUnitsToo) {
  const Unit<Codec>& constant = unit;
  const auto [sum, seven] =
      constant.call(&CodecImpl::decode, one, std::optional(one));
  EXPECT_EQ(sum.item<float>(), 5.0F);  // 2 + 2, then 1
  EXPECT_EQ(seven, 7);
  EXPECT_EQ(hooks->inputs, 2);
  EXPECT_EQ(unit.call(&CodecImpl::quick, one).item<float>(), 3.0F);
}

TEST_F(UnitCall, ConvertsArgumentsAndWritesThroughReferences) {
  torch::Tensor into;
  unit.call(&CodecImpl::store, one, into);
  EXPECT_EQ(into.item<float>(), 2.0F);
  EXPECT_EQ(unit->stores, 1);
  EXPECT_EQ(hooks->inputs, 1) << "an output argument is not an input";
  EXPECT_EQ(std::get<0>(unit.call(&CodecImpl::decode, one, std::nullopt))
                .item<float>(),
            3.0F);
}

TEST_F(UnitCall, ReachesInheritedAndOverloadedFunctions) {
  EXPECT_EQ(unit.call(&CodecImpl::inherited, one).item<float>(), 11.0F);
  EXPECT_EQ(unit.call(static_cast<torch::Tensor (CodecImpl::*)(int)>(
                          &CodecImpl::same),
                      4)
                .item<float>(),
            5.0F);
}

TEST_F(UnitCall, ALambdaKeepsDefaultArgumentsAndCallsSeveralFunctions) {
  const auto both = [](CodecImpl& codec, const torch::Tensor& x) {
    return codec.decode(codec.encode(x), x).first;
  };
  EXPECT_EQ(unit.call(both, one).item<float>(), 9.0F);  // 2 * 3 + 2, then 1
  EXPECT_EQ(hooks->inputs, 1);
  EXPECT_EQ(one.item<float>(), 1.0F);
}

TEST_F(UnitCall, TellsTheHooksThatTheFunctionThrew) {
  EXPECT_THROW(unit.call(&CodecImpl::fail, one), c10::Error);
  EXPECT_EQ(hooks->threw, 1);
  EXPECT_EQ(hooks->outputs, -1);
}

TEST_F(UnitCall, WorksOnTheModuleBehindTheHolder) {
  EXPECT_EQ(unit->call(&CodecImpl::encode, one, 3).item<float>(), 7.0F);
}

}  // namespace
}  // namespace accordion
