// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/model_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using nlohmann::json;
using testing::expect_message;

json llama() {
  return {{"model_type", "llama"},      {"num_hidden_layers", 32},
          {"hidden_size", 4096},        {"num_attention_heads", 32},
          {"intermediate_size", 11008}, {"vocab_size", 32000}};
}

// Counts of parameters are those of the published checkpoints.

TEST(ModelConfig, Llama2HasItsPublishedParameters) {
  EXPECT_EQ(model_from_config(llama()).num_params(), 6738415616);
}

TEST(ModelConfig, Llama3GroupsItsQueries) {
  json config = llama();
  config["num_key_value_heads"] = 8;
  config["intermediate_size"] = 14336;
  config["vocab_size"] = 128256;
  EXPECT_EQ(model_from_config(config).num_params(), 8030261248);
}

TEST(ModelConfig, MistralIsReadAsLlama) {
  json config = llama();
  config["model_type"] = "mistral";
  config["num_key_value_heads"] = 8;
  config["intermediate_size"] = 14336;
  EXPECT_EQ(model_from_config(config).num_params(), 7241732096);
}

TEST(ModelConfig, ReadsSlidingWindows) {
  json config = llama();
  config["sliding_window"] = 1024;
  EXPECT_EQ(model_from_config(config).sliding_window, 0);
  config["model_type"] = "mistral";
  EXPECT_EQ(model_from_config(config).sliding_window, 1024);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(model_from_config(config).sliding_window, 0);
  config.erase("sliding_window");
  EXPECT_EQ(model_from_config(config).sliding_window, 4096);
  config.update({{"model_type", "qwen2"}, {"max_window_layers", 8}});
  EXPECT_EQ(model_from_config(config).sliding_window, 0);
  config["use_sliding_window"] = true;
  EXPECT_EQ(model_from_config(config).sliding_window, 4096);
  EXPECT_EQ(model_from_config(config).max_window_layers, 8);
}

// Position i sees i + 1 or the window, on average; half of a sequence without.
TEST(ModelConfig, AWindowBoundsThePositionsThatAreSeen) {
  ModelShape shape = model_from_config(llama());
  EXPECT_EQ(shape.mean_positions_seen(1000), 500);
  shape.sliding_window = 2000;
  EXPECT_EQ(shape.mean_positions_seen(1000), 500);
  shape.sliding_window = 100;
  double seen = 0;
  for (int i = 0; i < 1000; ++i) {
    seen += std::min(i + 1, 100) / 1000.0;
  }
  EXPECT_NEAR(shape.mean_positions_seen(1000), seen, 0.5);
  shape.max_window_layers = shape.num_layers / 4;
  EXPECT_NEAR(shape.mean_positions_seen(1000), 0.25 * 500 + 0.75 * seen, 0.5);
}

TEST(ModelConfig, Qwen2HasBiasesOnQueryKeyValue) {
  const json config = {
      {"model_type", "qwen2"},    {"num_hidden_layers", 28},
      {"hidden_size", 3584},      {"num_attention_heads", 28},
      {"num_key_value_heads", 4}, {"intermediate_size", 18944},
      {"vocab_size", 152064},     {"tie_word_embeddings", false}};
  EXPECT_EQ(model_from_config(config).num_params(), 7615616512);
}

TEST(ModelConfig, Gpt2IsTiedAndHasPositions) {
  const json config = {{"model_type", "gpt2"}, {"n_layer", 12},
                       {"n_embd", 768},        {"n_head", 12},
                       {"n_positions", 1024},  {"vocab_size", 50257}};
  EXPECT_EQ(model_from_config(config).num_params(), 124439808);
}

TEST(ModelConfig, MptWithoutBiasesUsesAttentionBias) {
  const json config = {
      {"model_type", "mpt"}, {"n_layers", 32},
      {"d_model", 4096},     {"n_heads", 32},
      {"vocab_size", 50432}, {"no_bias", true},
      {"max_seq_len", 2048}, {"attn_config", {{"alibi", true}}}};
  EXPECT_EQ(model_from_config(config).num_params(), 6649286656);
}

TEST(ModelConfig, GptNeoxHasBiasesAndAHeadOfItsOwn) {
  const json config = {
      {"model_type", "gpt_neox"},   {"num_hidden_layers", 32},
      {"hidden_size", 2560},        {"num_attention_heads", 32},
      {"intermediate_size", 10240}, {"vocab_size", 50304}};
  EXPECT_EQ(model_from_config(config).num_params(), 2775208960);
}

TEST(ModelConfig, PublishedShapeFindsBiasesAndPositions) {
  const json shape = {
      {"params", 6658859008}, {"n_layers", 32},   {"d_model", 4096},
      {"n_heads", 32},        {"n_kv_heads", 32}, {"d_ff", 16384},
      {"ffn_mats", 2},        {"vocab", 50368},   {"tied", true}};
  const ModelShape model = model_from_published(shape, "MPT-7b");
  EXPECT_EQ(model.num_params(), 6658859008);
  EXPECT_EQ(model.max_positions, 2048);
}

TEST(ModelConfig, ParametersAloneChooseALlamaShape) {
  for (const double params : {125e6, 1e9, 7e9, 70e9, 400e9}) {
    const ChosenShape chosen = model_for_params(params);
    EXPECT_NEAR(static_cast<double>(chosen.shape.num_params()), params,
                0.15 * params);
    EXPECT_NE(chosen.rule.find("102 * layers"), std::string::npos);
  }
  EXPECT_NEAR(static_cast<double>(model_for_params(70e9).shape.num_layers),
              80.0, 4.0);
}

TEST(ModelConfig, ErrorsNameTheKey) {
  json config = llama();
  config.erase("hidden_size");
  expect_message([&] { model_from_config(config); }, {"'hidden_size'"});
  config["hidden_size"] = -4096;
  expect_message([&] { model_from_config(config); },
                 {"'hidden_size' is -4096", "from 1"});
  config["hidden_size"] = "wide";
  expect_message([&] { model_from_config(config); }, {"'hidden_size'"});
  config["hidden_size"] = 4096;
  config["num_attention_heads"] = 31;
  expect_message([&] { model_from_config(config); },
                 {"'num_attention_heads' is 31", "nearest that does is 32"});
  config["num_attention_heads"] = 32;
  config["num_key_value_heads"] = 7;
  expect_message([&] { model_from_config(config); },
                 {"num_kv_heads is 7", "nearest that does is 8"});
}

TEST(ModelConfig, UnknownFamilyNamesTheNearest) {
  expect_message(
      [] {
        model_from_config({{"model_type", "lama"}});
      },
      {"'lama'", "nearest is 'llama'"});
  expect_message([] { model_for_params(-7e9); }, {"params is -7", "1e6"});
}

}  // namespace
}  // namespace accordion::plan
