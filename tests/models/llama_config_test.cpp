// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace accordion {
namespace {

using nlohmann::json;

json minimal() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"intermediate_size", 172}, {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"vocab_size", 256}};
}

LlamaConfig parse(const json& object) {
  return LlamaConfig::from_json(object.dump(), "some.json");
}

/// The message for `minimal` with one key changed.
std::string error_with(const char* key, const json& value) {
  json object = minimal();
  object[key] = value;
  try {
    parse(object);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LlamaConfig, FillsInWhatHuggingFaceWould) {
  const LlamaConfig config = parse(minimal());
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(LlamaConfig, ReadsEveryKey) {
  json object = minimal();
  object.update({{"num_key_value_heads", 2},
                 {"head_dim", 20},
                 {"max_position_embeddings", 99},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 5e5},
                 {"initializer_range", 0.01},
                 {"tie_word_embeddings", true},
                 {"attention_bias", true},
                 {"mlp_bias", true},
                 {"rope_scaling", nullptr},
                 {"torch_dtype", "bfloat16"}});
  const LlamaConfig config = parse(object);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 20);
  EXPECT_EQ(config.max_position_embeddings, 99);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.initializer_range, 0.01);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
}

TEST(LlamaConfig, ReadsThetaFromNestedRopeParameters) {
  json object = minimal();
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 3e4}};
  EXPECT_EQ(parse(object).rope_theta, 3e4);
}

TEST(LlamaConfig, NamesKeyAndValueOfWhatIsNotImplemented) {
  const std::pair<const char*, json> unsupported[] = {
      {"model_type", "mixtral"},
      {"hidden_act", "gelu"},
      {"attention_dropout", 0.1},
      {"sliding_window", 4096},
      {"partial_rotary_factor", 0.5},
      {"quantization_config", {{"bits", 4}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}}}};
  for (const auto& [key, value] : unsupported) {
    const std::string message = error_with(key, value);
    EXPECT_NE(message.find("'some.json': \"" + std::string(key) + "\" is " +
                           value.dump()),
              std::string::npos)
        << message;
  }
}

TEST(LlamaConfig, ReadsTheWindowOfMistral) {
  json object = minimal();
  object["model_type"] = "mistral";
  object["num_key_value_heads"] = 2;
  EXPECT_EQ(parse(object).sliding_window, 4096);  // as Hugging Face has it
  EXPECT_EQ(parse(object).max_position_embeddings, 131'072);
  object["sliding_window"] = nullptr;
  EXPECT_FALSE(parse(object).is_windowed(1));
  object["sliding_window"] = 100;
  const LlamaConfig config = parse(object);
  EXPECT_EQ(config.sliding_window, 100);
  EXPECT_TRUE(config.is_windowed(0));
  EXPECT_TRUE(config.is_windowed(1));
  EXPECT_FALSE(config.has_qkv_bias());
  for (const json& wrong : {json(0), json(-1), json("all")}) {
    object["sliding_window"] = wrong;
    EXPECT_THROW(parse(object), ConfigError) << wrong;
  }
  object["sliding_window"] = 100;
  object.erase("num_key_value_heads");  // 8, which 4 heads cannot share
  EXPECT_THROW(parse(object), ConfigError);
}

TEST(LlamaConfig, ReadsTheWindowsOfQwen2) {
  json object = minimal();
  object.update({{"model_type", "qwen2"},
                 {"num_hidden_layers", 3},
                 {"num_key_value_heads", 2},
                 {"sliding_window", 100},
                 {"max_window_layers", 2}});
  EXPECT_EQ(parse(object).sliding_window, 0);
  object["use_sliding_window"] = true;
  const LlamaConfig config = parse(object);
  EXPECT_FALSE(config.is_windowed(1));
  EXPECT_TRUE(config.is_windowed(2));
  EXPECT_TRUE(config.has_qkv_bias());
  EXPECT_FALSE(config.attention_bias);
  object["layer_types"] = {"full_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_NO_THROW(parse(object));
  object["layer_types"] = {"sliding_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_THROW(parse(object), ConfigError);
}

TEST(LlamaConfig, NamesShapesThatCannotBe) {
  const std::tuple<const char*, json, const char*> impossible[] = {
      {"hidden_size", 66, "must be a multiple of num_attention_heads (4)"},
      {"hidden_size", 0, "\"hidden_size\" is 0"},
      {"num_key_value_heads", 3, "must divide num_attention_heads (4)"},
      {"num_attention_heads", 0, "\"num_attention_heads\" is 0"},
      {"head_dim", 15, "it must be even"},
      {"vocab_size", -5, "\"vocab_size\" is -5"},
      {"rms_norm_eps", 0, "\"rms_norm_eps\" is 0"},
      {"hidden_size", "64", "it must be a whole number"},
      {"rope_theta", "big", "it must be a number"},
      {"tie_word_embeddings", 1, "it must be true or false"},
      {"rope_parameters", 3, "it must be an object"}};
  for (const auto& [key, value, phrase] : impossible) {
    EXPECT_NE(error_with(key, value).find(phrase), std::string::npos)
        << error_with(key, value);
  }
}

TEST(LlamaConfig, NamesWhatIsMissing) {
  json object = minimal();
  object.erase("vocab_size");
  EXPECT_THROW(parse(object), ConfigError);
  object = minimal();
  object.erase("model_type");
  EXPECT_THROW(parse(object), ConfigError);
  EXPECT_THROW(LlamaConfig::from_json("{", "x"), ConfigError);
  EXPECT_THROW(LlamaConfig::from_file("no/such/config.json"), ConfigError);
}

TEST(LlamaConfig, CountsParameters) {
  LlamaConfig config =
      LlamaConfig::from_file(ACCORDION_TEST_DATA "/parity/tiny.json");
  EXPECT_EQ(config.numel(), 857'216);
  config.tie_word_embeddings = true;
  EXPECT_EQ(config.numel(), 857'216 - 256 * 128);
}

}  // namespace
}  // namespace accordion
