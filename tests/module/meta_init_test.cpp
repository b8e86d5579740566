// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/meta_init.h"

#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>
#include <torch/types.h>

#include "accordion/module/unit.h"

namespace accordion {
namespace {

at::Tensor generator_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

template <class F>
auto under_meta(F&& make) {
  const MetaInit meta;
  return make();
}

void expect_on_meta(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    EXPECT_TRUE(item.value().is_meta()) << module.name() << " " << item.key();
  }
  for (const auto& item : module.named_buffers()) {
    // A single number keeps its value: num_batches_tracked.
    EXPECT_TRUE(item.value().is_meta() || item.value().dim() == 0)
        << module.name() << " " << item.key();
  }
}

TEST(MetaInit, BuildsStockModulesWithoutMemoryOrRandomNumbers) {
  using namespace torch::nn;
  const at::Tensor before = generator_state();
  const auto modules = under_meta([] {
    return std::vector<std::shared_ptr<Module>>{
        Linear(7, 5).ptr(),
        Bilinear(2, 3, 4).ptr(),
        Embedding(EmbeddingOptions(10, 4).padding_idx(0)).ptr(),
        Conv2d(Conv2dOptions(3, 4, 5)).ptr(),
        ConvTranspose1d(ConvTranspose1dOptions(3, 4, 5)).ptr(),
        BatchNorm2d(6).ptr(),
        InstanceNorm1d(
            InstanceNorm1dOptions(6).affine(true).track_running_stats(true))
            .ptr(),
        LayerNorm(LayerNormOptions({6})).ptr(),
        GroupNorm(2, 6).ptr(),
        LSTM(LSTMOptions(4, 5).num_layers(2).bidirectional(true)).ptr(),
        GRUCell(4, 5).ptr(),
        PReLU().ptr(),
        MultiheadAttention(8, 2).ptr(),
        TransformerEncoder(
            TransformerEncoderLayer(TransformerEncoderLayerOptions(8, 2)), 2)
            .ptr(),
        Unit<Transformer>(TransformerOptions(8, 2, 1, 1)).ptr()};
  });
  for (const auto& module : modules) {
    expect_on_meta(*module);
    EXPECT_FALSE(module->parameters().empty()) << module->name();
  }
  EXPECT_TRUE(torch::equal(before, generator_state()));
}

TEST(MetaInit, AModuleOfAnySizeCostsNothing) {
  const auto layer =
      under_meta([] { return torch::nn::Linear(1 << 20, 1 << 20); });
  EXPECT_EQ(layer->weight.numel(), std::int64_t{1} << 40);
}

TEST(MetaInit, FactoriesAndWhatIsMadeOfThemAreOnMeta) {
  const MetaInit meta;
  const std::vector<torch::Tensor> made = {
      torch::empty({2}),
      torch::empty_strided({2, 3}, {3, 1}),
      torch::zeros({2}, torch::kLong),
      torch::full({2}, 0.5),
      torch::randn({2}),
      torch::arange(4),
      torch::linspace(0, 1, 4),
      torch::eye(3),
      torch::hann_window(5),
      torch::ones({3, 3}).tril(),
      torch::outer(torch::arange(3),
                   1.0 / torch::pow(10000.0, torch::arange(0, 4, 2) / 4.0)),
      torch::nn::init::orthogonal_(torch::empty({4, 4}))};
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_TRUE(made[i].is_meta()) << "tensor " << i;
  }
}

TEST(MetaInit, ConstantsWithValuesKeepThem) {
  std::vector<float> data = {1, 2, 3};
  const auto loaded = torch::ones({2});
  const MetaInit meta;
  EXPECT_EQ(torch::tensor(3.0).item<double>(), 3.0);
  EXPECT_EQ(torch::tensor({1.0, 2.0})[1].item<double>(), 2.0);
  EXPECT_EQ(torch::tensor(data).sum().item<float>(), 6.0F);
  EXPECT_EQ(torch::from_blob(data.data(), {3}).clone()[2].item<float>(), 3.0F);
  EXPECT_EQ(loaded.clone().sum().item<float>(), 2.0F);
  EXPECT_EQ(torch::zeros_like(loaded).device(), torch::kCPU);
  EXPECT_EQ(torch::tril_indices(3, 3).size(1), 6);
  EXPECT_EQ(torch::randperm(5).sum().item<std::int64_t>(), 10);
}

TEST(MetaInit, ConstantsMixWithMeta) {
  const MetaInit meta;
  const auto constant = torch::tensor({1.0F, 2.0F});
  EXPECT_TRUE((constant * torch::arange(2)).is_meta());
  EXPECT_TRUE(torch::cat({constant, torch::ones({3})}).is_meta());
  EXPECT_FALSE(constant.is_meta());
}

TEST(MetaInit, ANamedDeviceIsHonoured) {
  const MetaInit meta;
  EXPECT_EQ(torch::zeros({2}, torch::kCPU).sum().item<float>(), 0.0F);
}

TEST(MetaInit, ReadingAValueNamesTheRemedy) {
  const MetaInit meta;
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing was thrown";
  };
  for (const auto& text :
       {message([] { torch::arange(3).sum().item(); }),
        message([] { torch::ones({2}).to(torch::kCPU); }), message([] {
          torch::tensor({1.0, 2.0}).mul_(torch::arange(2));
        })}) {
    EXPECT_NE(text.find("accordion::RealInit"), std::string::npos) << text;
  }
  EXPECT_EQ(message([] {
              torch::tensor({1.0, 2.0}).view({3});
            }).find("MetaInit"),
            std::string::npos)
      << "an error that is not about missing values";
}

TEST(MetaInit, GuardsNestAndEndWithTheirScope) {
  const auto on_meta = [] { return torch::empty({1}).is_meta(); };
  EXPECT_FALSE(on_meta());
  {
    const MetaInit outer;
    {
      const MetaInit inner;
      EXPECT_TRUE(on_meta());
    }
    EXPECT_TRUE(on_meta());
    {
      const RealInit real;
      EXPECT_FALSE(on_meta());
      {
        const MetaInit again;
        EXPECT_TRUE(on_meta());
      }
      EXPECT_FALSE(on_meta());
    }
    EXPECT_TRUE(on_meta());
  }
  EXPECT_FALSE(on_meta());
  try {
    const MetaInit meta;
    throw std::runtime_error("a constructor fails");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(on_meta());
  }
}

TEST(MetaInit, AFailedOperatorLeavesItOn) {
  const MetaInit meta;
  EXPECT_THROW(torch::ones({2}).view({3}), c10::Error);
  EXPECT_TRUE(torch::empty({1}).is_meta());
}

TEST(MetaInit, OtherThreadsDoNotNotice) {
  const MetaInit meta;
  bool on_meta = true;
  std::thread([&] { on_meta = torch::empty({1}).is_meta(); }).join();
  EXPECT_FALSE(on_meta);
  EXPECT_TRUE(torch::empty({1}).is_meta());
}

}  // namespace
}  // namespace accordion
