// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accordion/models/generate.h"
#include "accordion/models/initialize.h"
#include "accordion/ops/cross_entropy.h"

namespace accordion {
namespace {

LlamaConfig small_config() {
  LlamaConfig config;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.vocab_size = 50;
  config.max_position_embeddings = 64;
  return config;
}

void initialize_all(torch::nn::Module& model) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : model.named_parameters()) {
    at::Tensor& value = parameter.value();
    initialize(
        parameter.key(), value.sizes().vec(), 0, 1,
        {value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel())},
        0.2);
  }
}

at::Tensor some_tokens(int64_t batch, int64_t seq_len) {
  return at::arange(batch * seq_len, at::kLong)
      .mul(17)
      .remainder(50)
      .view({batch, seq_len});
}

std::set<std::string> names_of(const torch::nn::Module& model) {
  std::set<std::string> names;
  for (const auto& parameter : model.named_parameters()) {
    names.insert(parameter.key());
  }
  return names;
}

TEST(Llama, BearsTheNamesOfHuggingFace) {
  LlamaConfig config = small_config();
  config.num_hidden_layers = 1;
  config.attention_bias = true;
  config.mlp_bias = true;
  const std::string layer = "model.layers.0.";
  std::set<std::string> expected = {"model.embed_tokens.weight",
                                    "model.norm.weight", "lm_head.weight",
                                    layer + "input_layernorm.weight",
                                    layer + "post_attention_layernorm.weight"};
  for (const char* projection :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    expected.insert(layer + projection + ".weight");
    expected.insert(layer + projection + ".bias");
  }
  const Unit<Llama> model(config);
  EXPECT_EQ(names_of(*model), expected);
  int64_t numel = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    numel += parameter.numel();
  }
  EXPECT_EQ(numel, config.numel());
}

TEST(Llama, QueriesKeysAndValuesAloneMayHaveBiases) {
  LlamaConfig config = small_config();
  config.qkv_bias = true;
  const Unit<Llama> model(config);
  const std::set<std::string> names = names_of(*model);
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.q_proj.bias"));
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.v_proj.bias"));
  EXPECT_FALSE(names.contains("model.layers.1.self_attn.o_proj.bias"));
  int64_t numel = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    numel += parameter.numel();
  }
  EXPECT_EQ(numel, config.numel());
}

/// First and last position whose logits change with the first of 20 tokens.
std::pair<int64_t, int64_t> reach_of_the_first_token(
    const LlamaConfig& config) {
  Unit<Llama> model(config);
  initialize_all(*model);
  const at::NoGradGuard no_grad;
  at::Tensor tokens = some_tokens(1, 20);
  const at::Tensor before = model(tokens).logits;
  tokens[0][0] += 1;
  const at::Tensor changed =
      model(tokens).logits.ne(before).any(-1)[0].nonzero().flatten();
  return {changed[0].item<int64_t>(), changed[-1].item<int64_t>()};
}

// In each windowed layer what a position holds moves window - 1 positions on.
TEST(Llama, AWindowBoundsHowFarATokenReaches) {
  LlamaConfig config = small_config();
  using Reach = std::pair<int64_t, int64_t>;
  EXPECT_EQ(reach_of_the_first_token(config), Reach(0, 19));
  config.sliding_window = 4;
  EXPECT_EQ(reach_of_the_first_token(config), Reach(0, 2 * 3));
  config.num_hidden_layers = 1;
  EXPECT_EQ(reach_of_the_first_token(config), Reach(0, 3));
  config.num_hidden_layers = 2;
  config.max_window_layers = 1;  // the first layer sees all
  EXPECT_EQ(reach_of_the_first_token(config), Reach(0, 19));
}

TEST(Llama, ContinuesATextFromItsWindowsAlone) {
  LlamaConfig config = small_config();
  config.sliding_window = 4;
  Unit<Llama> model(config);
  initialize_all(*model);
  const auto logits = [&model](const at::Tensor& tokens) {
    return model(tokens).logits;
  };
  // What lies before the windows of both layers makes no difference.
  const auto continued = [&](int64_t first) {
    std::vector<int64_t> prompt = {first, first, 3, 1, 4, 1, 5, 9, 2};
    std::vector<int64_t> all = generate(logits, prompt, {.num_tokens = 8});
    return std::vector<int64_t>(all.begin() + 2, all.end());
  };
  EXPECT_EQ(continued(7), continued(8));
}

TEST(Llama, ATiedHeadIsTheEmbedding) {
  LlamaConfig config = small_config();
  config.tie_word_embeddings = true;
  Unit<Llama> model(config);
  EXPECT_FALSE(names_of(*model).contains("lm_head.weight"));
  initialize_all(*model);
  const at::Tensor tokens = some_tokens(2, 9);
  model(tokens, tokens).loss.backward();
  // Rows of tokens that never occur get a gradient through the head alone.
  const at::Tensor gradient =
      model->named_parameters()["model.embed_tokens.weight"].grad();
  EXPECT_TRUE(gradient.abs().sum(1).gt(0).all().item<bool>());
}

TEST(Llama, LossIsTheCrossEntropyOfItsLogits) {
  Unit<Llama> model(small_config());
  initialize_all(*model);
  const at::Tensor tokens = some_tokens(3, 11);
  at::Tensor targets = tokens.roll(1, 1).clone();
  targets[0][0] = ops::kIgnoredTarget;
  const at::Tensor logits = model(tokens).logits;
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3, 11, 50}));
  const LlamaOutput output = model(tokens, targets);
  const at::Tensor expected =
      at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
  EXPECT_NEAR(output.loss.item<double>(), expected.item<double>(), 1e-6);
  EXPECT_NEAR(model(tokens, targets, 64).loss.item<double>() * 2,
              output.loss.item<double>(), 1e-6);
  EXPECT_EQ(output.correct.item<int64_t>(),
            logits.argmax(-1).eq(targets).sum().item<int64_t>());
  EXPECT_FALSE(output.logits.defined());
}

TEST(Llama, LossInChunksHasTheSameGradients) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = small_config();
    config.tie_word_embeddings = tied;
    const auto run = [&](int64_t chunk) {
      Unit<Llama> model(config);
      initialize_all(*model);
      model->set_loss_chunk(chunk);
      const at::Tensor tokens = some_tokens(3, 11);
      at::Tensor targets = tokens.roll(1, 1).clone();
      targets[0].fill_(ops::kIgnoredTarget);  // a chunk without a target
      const LlamaOutput output = model(tokens, targets);
      output.loss.backward();
      std::map<std::string, at::Tensor> result = {
          {"loss", output.loss.detach()}, {"correct", output.correct}};
      for (const auto& parameter : model->named_parameters()) {
        result[parameter.key()] = parameter.value().grad();
      }
      return result;
    };
    const auto whole = run(0);
    for (const int64_t chunk : {1, 8, 11, 33, 100}) {
      for (const auto& [name, value] : run(chunk)) {
        EXPECT_TRUE(at::allclose(value, whole.at(name), 1e-5, 1e-7))
            << name << ", chunks of " << chunk << ", tied: " << tied;
      }
    }
  }
}

// What reduces gradients takes them as they lie.
TEST(Llama, GradientsAreContiguous) {
  Unit<Llama> model(small_config());
  initialize_all(*model);
  const at::Tensor tokens = some_tokens(2, 9);
  model(tokens, tokens).loss.backward();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(parameter.value().grad().is_contiguous()) << parameter.key();
  }
}

TEST(Llama, LaterTokensDoNotChangeEarlierLogits) {
  Unit<Llama> model(small_config());
  initialize_all(*model);
  torch::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(1, 12);
  const at::Tensor all = model(tokens).logits;
  const at::Tensor part = model(tokens.narrow(1, 0, 7)).logits;
  EXPECT_TRUE(at::allclose(all.narrow(1, 0, 7), part, 1e-4, 1e-6));
}

TEST(Llama, NamesSequencesThatDoNotFit) {
  Unit<Llama> model(small_config());
  const auto message = [&](const at::Tensor& tokens,
                           const at::Tensor& targets) {
    try {
      model(tokens, targets);
    } catch (const c10::ValueError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(some_tokens(1, 65), {})
                .find("at most max_position_embeddings (64)"),
            std::string::npos);
  EXPECT_NE(message(some_tokens(1, 5), some_tokens(1, 6))
                .find("tokens have shape [1, 5] but targets [1, 6]"),
            std::string::npos);
  LlamaConfig config = small_config();
  config.num_key_value_heads = 3;
  EXPECT_THROW(Unit<Llama>{config}, ConfigError);
}

}  // namespace
}  // namespace accordion
