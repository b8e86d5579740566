// SPDX-License-Identifier: BSD-3-Clause
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/hugging_face_config.h"
#include "accordion/checkpoint/hugging_face_tokenizer.h"
#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

using nlohmann::json;

TEST(HuggingFaceConfig, KeepsTheKeysOfTheUserInTheirOrder) {
  const std::string text = hugging_face_config(
      R"({"vocab_size": 256, "model_type": "llama", "rms_norm_eps": 1e-05,
          "my_key": {"b": 1, "a": [2]}, "torch_dtype": "float32"})",
      "BF16", {.bos = 1, .eos = {}}, "config");
  EXPECT_EQ(json::parse(text),
            json::parse(R"({"vocab_size": 256, "model_type": "llama",
              "rms_norm_eps": 1e-05, "my_key": {"b": 1, "a": [2]},
              "torch_dtype": "bfloat16", "dtype": "bfloat16",
              "architectures": ["LlamaForCausalLM"],
              "bos_token_id": 1, "eos_token_id": null})"));
  EXPECT_LT(text.find("vocab_size"), text.find("my_key"));
  EXPECT_LT(text.find("\"b\""), text.find("\"a\""));
}

TEST(HuggingFaceConfig, NamesTheFamily) {
  const std::pair<const char*, const char*> families[] = {
      {"llama", "LlamaForCausalLM"},
      {"mistral", "MistralForCausalLM"},
      {"qwen2", "Qwen2ForCausalLM"}};
  for (const auto& [type, architecture] : families) {
    const json config = json::parse(hugging_face_config(
        json{{"model_type", type}, {"sliding_window", 64}}.dump(), "F32", {},
        "config"));
    EXPECT_EQ(config["model_type"], type);
    EXPECT_EQ(config["architectures"], json{architecture});
    EXPECT_EQ(config["sliding_window"], 64);
  }
}

TEST(HuggingFaceConfig, TokensOfTheUserStay) {
  const std::string text = hugging_face_config(
      R"({"bos_token_id": 5, "eos_token_id": [6, 7], "pad_token_id": null})",
      "F32", {.bos = 1, .eos = 2}, "config");
  EXPECT_EQ(json::parse(text)["bos_token_id"], 5);
  EXPECT_EQ(json::parse(generation_config(text)),
            json::parse(R"({"_from_model_config": true, "bos_token_id": 5,
                            "eos_token_id": [6, 7]})"));
}

TEST(HuggingFaceConfig, NamesTheTextThatIsNoObject) {
  expect_checkpoint_error([] { hugging_face_config("3", "F32", {}, "place"); },
                          {"'place'", "not a JSON object"});
}

/// The character of a text of one, by its number.
int code_point(const std::string& text) {
  const auto at = [&](std::size_t i) {
    return static_cast<unsigned char>(text.at(i));
  };
  EXPECT_LE(text.size(), 2U);
  return text.size() == 1 ? at(0) : (at(0) & 0x1f) << 6 | (at(1) & 0x3f);
}

TEST(HuggingFaceTokenizer, TokenOfAByteIsItsValue) {
  const NamedTexts files = byte_tokenizer_files(1024);
  const json tokenizer = json::parse(files.at("tokenizer.json"));
  const json& vocabulary = tokenizer["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), 256U);
  EXPECT_TRUE(tokenizer["model"]["merges"].empty());
  std::set<int> ids;
  for (const auto& [symbol, id] : vocabulary.items()) {
    ids.insert(id.get<int>());
    const int code = code_point(symbol);
    // Of bytes that do not print: 33 at the start, 34 from 127 on, and 173.
    const int byte = code < 256        ? code
                     : code < 256 + 33 ? code - 256
                     : code < 256 + 67 ? code - 256 - 33 + 127
                                       : 173;
    EXPECT_EQ(id, byte) << symbol;
  }
  EXPECT_EQ(ids.size(), 256U);
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["model_max_length"],
            1024);
}

TEST(HuggingFaceTokenizer, SentencePieceModelComesAsItIs) {
  SentencePieceFacts facts{.specials = {{"bos", "<s>"}, {"unk", "<unk>"}}};
  const NamedTexts files =
      sentence_piece_files(std::string("\0model", 6), facts, 32);
  EXPECT_EQ(files.at("tokenizer.model"), std::string("\0model", 6));
  const json config = json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_TRUE(config["eos_token"].is_null());
  EXPECT_TRUE(files.contains("special_tokens_map.json"));
  facts.is_like_llama = true;
  EXPECT_EQ(json::parse(sentence_piece_files("", facts, 32)
                            .at("tokenizer_config.json"))["tokenizer_class"],
            "LlamaTokenizer");
}

}  // namespace
}  // namespace accordion::testing
