// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/materialize.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>

#include "accordion/module/meta_init.h"
#include "accordion/module/unit.h"

namespace accordion {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using Factory = std::function<ModulePtr()>;

template <class Make>
auto on_meta(Make&& make) {
  const MetaInit meta;
  return make();
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

/// Stock modules with parameters large enough for statistics.
const std::vector<std::pair<const char*, Factory>>& stock_modules() {
  using namespace torch::nn;
  static const std::vector<std::pair<const char*, Factory>> modules = {
      {"Linear", [] { return Linear(50, 200).ptr(); }},
      {"Bilinear", [] { return Bilinear(20, 30, 100).ptr(); }},
      {"Conv1d", [] { return Conv1d(30, 100, 5).ptr(); }},
      {"Conv2d",
       [] { return Conv2d(Conv2dOptions(30, 100, 3).groups(10)).ptr(); }},
      {"ConvTranspose2d", [] { return ConvTranspose2d(40, 100, 3).ptr(); }},
      {"BatchNorm1d", [] { return BatchNorm1d(100).ptr(); }},
      {"InstanceNorm2d",
       [] {
         return InstanceNorm2d(InstanceNorm2dOptions(100).affine(true)).ptr();
       }},
      {"LayerNorm", [] { return LayerNorm(LayerNormOptions({100})).ptr(); }},
      {"GroupNorm", [] { return GroupNorm(2, 100).ptr(); }},
      {"Embedding",
       [] {
         return Embedding(EmbeddingOptions(100, 50).padding_idx(-2)).ptr();
       }},
      {"EmbeddingBag", [] { return EmbeddingBag(100, 50).ptr(); }},
      {"RNN", [] { return RNN(30, 100).ptr(); }},
      {"LSTM",
       [] {
         return LSTM(LSTMOptions(30, 100).num_layers(2).proj_size(40)).ptr();
       }},
      {"GRUCell", [] { return GRUCell(30, 100).ptr(); }},
      {"PReLU", [] { return PReLU(PReLUOptions().init(0.4)).ptr(); }},
      {"MultiheadAttention",
       [] {
         return MultiheadAttention(
                    MultiheadAttentionOptions(64, 4).add_bias_kv(true))
             .ptr();
       }},
      {"MultiheadAttention, other keys",
       [] {
         return MultiheadAttention(
                    MultiheadAttentionOptions(64, 4).kdim(30).vdim(50))
             .ptr();
       }},
      {"TransformerEncoderLayer",
       [] {
         return TransformerEncoderLayer(
                    TransformerEncoderLayerOptions(64, 4).dim_feedforward(100))
             .ptr();
       }},
      {"Transformer",
       [] {
         return Transformer(
                    TransformerOptions(64, 4, 1, 1).dim_feedforward(100))
             .ptr();
       }},
      {"Unit", [] { return Unit<Linear>(50, 200).ptr(); }}};
  return modules;
}

double deviation_of(const torch::Tensor& values) {
  return values.numel() < 2 ? 0 : values.std(/*unbiased=*/false).item<double>();
}

TEST(Materialize, StockModulesStartAsLibTorchStartsThem) {
  torch::manual_seed(3);
  for (const auto& [label, make] : stock_modules()) {
    const auto expected = make();
    const auto got = on_meta(make);
    materialize(*got);
    for (const auto& item : expected->named_parameters()) {
      const auto& e = item.value();
      const auto g = got->named_parameters()[item.key()];
      const double deviation = deviation_of(e);
      const double count = static_cast<double>(e.numel());
      const std::string where = std::string(label) + " " + item.key();
      EXPECT_FALSE(g.is_meta()) << where;
      EXPECT_TRUE(g.requires_grad()) << where;
      EXPECT_NEAR(deviation_of(g), deviation, 6 * deviation / std::sqrt(count))
          << where;
      EXPECT_NEAR(g.mean().item<double>(), e.mean().item<double>(),
                  8 * deviation / std::sqrt(count))
          << where;
      // Uniform and normal values differ in how far they reach.
      EXPECT_NEAR(g.abs().max().item<double>(), e.abs().max().item<double>(),
                  deviation * (count > 1000 && deviation < 0.3 ? 0.2 : 1.5))
          << where;
    }
    for (const auto& item : expected->named_buffers()) {
      EXPECT_TRUE(torch::equal(got->named_buffers()[item.key()], item.value()))
          << label << " " << item.key();
    }
  }
}

TEST(Materialize, ThePaddingRowOfAnEmbeddingIsZero) {
  auto embedding = on_meta([] {
    return torch::nn::Embedding(
        torch::nn::EmbeddingOptions(5, 3).padding_idx(-2));
  });
  materialize(embedding);
  const auto is_zero = (embedding->weight == 0).all(1);
  EXPECT_TRUE(
      torch::equal(is_zero, torch::tensor({false, false, false, true, false})));
}

struct NetImpl : Module {
  explicit NetImpl(bool tied = false) {
    first = register_module("first", torch::nn::Linear(4, 4));
    second = register_module("second", tied ? first : torch::nn::Linear(4, 4));
  }
  torch::Tensor forward(torch::Tensor x) { return second(first(x)); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

TEST(Materialize, ValuesDependOnSeedAndNameAlone) {
  const WholeInit made_whole = [](const at::Tensor& whole,
                                  at::Generator generator) {
    whole.normal_(0, 1, generator);
  };
  for (const bool by_rule : {true, false}) {
    const auto make = [&](std::uint64_t seed) {
      auto net = on_meta([] { return Net(); });
      torch::rand({7});  // the state of the generator does not matter
      InitOptions options{.seed = seed};
      if (!by_rule) {
        options.initial_value = [&](const auto&, const auto&) {
          return std::optional<InitialValue>(made_whole);
        };
      }
      materialize(net, options);
      return net;
    };
    const auto a = make(5);
    EXPECT_TRUE(torch::equal(a->first->weight, make(5)->first->weight));
    EXPECT_FALSE(torch::equal(a->first->weight, make(6)->first->weight));
    EXPECT_FALSE(torch::equal(a->first->weight, a->second->weight));
  }
}

TEST(Materialize, PiecesEqualTheWholeForEachKindAndDtype) {
  const WholeInit orthogonal = [](const at::Tensor& whole,
                                  at::Generator generator) {
    const auto drawn = torch::empty({11, 11}).normal_(0, 1, generator);
    whole.copy_(std::get<0>(torch::linalg_qr(drawn)));
  };
  for (const InitialValue& value :
       {InitialValue(InitRule::normal(0, 1)), InitialValue(orthogonal)}) {
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
      const ParameterInit init{
          .name = "w",
          .parameter = torch::empty({11, 11}, torch::kMeta),
          .value = value,
          .key = random_key(1, "w")};
      const auto whole = torch::empty({11, 11}, dtype);
      initialize_piece(init, 0, whole);
      for (const std::int64_t begin : {0, 7, 22, 121}) {
        const auto piece = torch::empty({121 - begin}, dtype);
        initialize_piece(init, begin, piece);
        EXPECT_TRUE(torch::equal(piece, whole.view({-1}).slice(0, begin)))
            << dtype << " from " << begin;
      }
    }
  }
}

TEST(Materialize, KeepsTheTensorsAndSoOptimizersAndTies) {
  auto net = on_meta([] { return Net(/*tied=*/true); });
  torch::optim::SGD optimizer(net->first->parameters(), 0.5);
  const auto* before = net->first->weight.unsafeGetTensorImpl();
  materialize(net);
  EXPECT_EQ(net->first->weight.unsafeGetTensorImpl(), before);
  EXPECT_TRUE(net->second->weight.is_same(net->first->weight));
  const auto start = net->first->weight.detach().clone();
  net(torch::ones({2, 4})).sum().backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(net->first->weight,
                              start - 0.5 * net->first->weight.grad()));
}

TEST(Materialize, LoadedValuesAreKept) {
  auto net = on_meta([] { return Net(); });
  assign_data(net->first->weight, torch::full({4, 4}, 9.0));
  materialize(net);
  EXPECT_TRUE((net->first->weight == 9).all().item<bool>());
  EXPECT_FALSE(net->second->weight.is_meta());
  const auto before = net->second->weight.clone();
  materialize(net, {.seed = 77});
  EXPECT_TRUE(torch::equal(net->second->weight, before));
}

struct ScaledImpl : Module, InitialValues {
  ScaledImpl() {
    scale = register_parameter("scale", torch::ones({3}));
    net = register_module("net", Net());
  }
  std::optional<InitialValue> initial_value(const std::string& name,
                                            const at::Tensor&) const override {
    if (name == "scale") {
      return InitRule::constant(2);
    }
    return name == "net.first.bias"
               ? std::optional<InitialValue>(InitRule::constant(5))
               : std::nullopt;
  }
  torch::Tensor scale;
  Net net{nullptr};
};
TORCH_MODULE(Scaled);

TEST(Materialize, OptionsComeBeforeModulesAndOuterBeforeInner) {
  auto scaled = on_meta([] { return Scaled(); });
  materialize(
      scaled,
      {.initial_value = [](const std::string& name,
                           const at::Tensor&) -> std::optional<InitialValue> {
        if (name == "scale") {
          return InitRule::constant(3);
        }
        return std::nullopt;
      }});
  EXPECT_EQ(scaled->scale[0].item<float>(), 3.0F);
  EXPECT_EQ(scaled->net->first->bias[0].item<float>(), 5.0F);
  EXPECT_LE(scaled->net->second->bias.abs().max().item<float>(), 0.5F);
}

struct UnknownImpl : Module {
  torch::Tensor forward(torch::Tensor x) { return gain * x; }
  UnknownImpl() {
    gain = register_parameter("gain", torch::ones({3}));
    table = register_buffer("table", torch::arange(4));
  }
  torch::Tensor gain, table;
};
TORCH_MODULE(Unknown);

TEST(Materialize, ErrorsNameWhatNobodyKnowsAndChangeNothing) {
  auto net = on_meta([] {
    torch::nn::Sequential made(torch::nn::Linear(2, 2), Unknown());
    return made;
  });
  const auto message = error_of([&] { materialize(net); });
  EXPECT_NE(message.find("nobody says how 1 parameter starts: '1.gain' [3]"),
            std::string::npos)
      << message;
  EXPECT_TRUE(net->parameters()[0].is_meta());

  assign_data(net->parameters()[2], torch::ones({3}));
  EXPECT_NE(error_of([&] {
              materialize(net);
            }).find("1 buffer has no values: '1.table' [4]"),
            std::string::npos);
  materialize(net, {.fill_buffer = [](const std::string& name,
                                      const at::Tensor& buffer) {
                if (name != "1.table") {
                  return false;
                }
                buffer.copy_(torch::arange(4));
                return true;
              }});
  EXPECT_EQ(net->buffers()[0].sum().item<std::int64_t>(), 6);
}

struct RotaryImpl : Module, BuffersFromConfig {
  explicit RotaryImpl(bool forgets = false) : forgets(forgets) {
    cosine = register_buffer("cosine", torch::empty({4, 2}));
    sine = register_buffer("sine", torch::empty({4, 2}));
    reset_buffers();
  }
  void reset_buffers() override {
    const auto angle = torch::outer(torch::arange(4), torch::ones({2}));
    cosine.copy_(angle.cos());
    if (!forgets) {
      sine.copy_(angle.sin());
    }
    mask = torch::ones({4, 4}).tril();
  }
  bool forgets;
  torch::Tensor cosine, sine, mask;
};
TORCH_MODULE(Rotary);

TEST(RebuildBuffers, ComputesTablesAndPlainMembersFromTheConfiguration) {
  auto rotary = on_meta([] { return Rotary(); });
  EXPECT_TRUE(rotary->mask.is_meta());
  materialize(rotary);
  const Rotary expected;
  EXPECT_TRUE(torch::equal(rotary->cosine, expected->cosine));
  EXPECT_TRUE(torch::equal(rotary->sine, expected->sine));
  EXPECT_TRUE(torch::equal(rotary->mask, expected->mask));
}

TEST(RebuildBuffers, LoadedBuffersAreKept) {
  auto rotary = on_meta([] { return Rotary(); });
  assign_data(rotary->cosine, torch::full({4, 2}, 9.0));
  materialize(rotary);
  EXPECT_TRUE((rotary->cosine == 9).all().item<bool>());
  EXPECT_EQ(rotary->sine[0][0].item<float>(), 0.0F);
}

TEST(RebuildBuffers, ABufferThatItsModuleForgetsIsAnError) {
  auto rotary = on_meta([] { return Rotary(/*forgets=*/true); });
  const auto message = error_of([&] { materialize(rotary); });
  EXPECT_NE(message.find("1 buffer has no values: 'sine' [4, 2]"),
            std::string::npos)
      << message;
}

TEST(Materialize, WorksWhileAMetaInitLives) {
  const MetaInit meta;
  torch::nn::Linear layer(torch::nn::LinearOptions(4, 4));
  layer->to(torch::kBFloat16);
  materialize(layer);
  EXPECT_EQ(layer->weight.device(), torch::kCPU);
}

}  // namespace
}  // namespace accordion
