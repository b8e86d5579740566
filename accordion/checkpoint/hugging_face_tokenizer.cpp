// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/hugging_face_tokenizer.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace accordion {
namespace {

using Json = nlohmann::ordered_json;

/// Whether byte-level vocabularies write a byte as its Latin-1 character; the
/// others, which do not print, get characters from U+0100 on in their order.
bool prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

std::string utf8(int code_point) {
  if (code_point < 0x80) {
    return {static_cast<char>(code_point)};
  }
  return {static_cast<char>(0xc0 | code_point >> 6),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

/// Symbol i stands for byte i.
Json byte_vocabulary() {
  Json vocabulary = Json::object();
  int unprintable = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[utf8(prints(byte) ? byte : unprintable++)] = byte;
  }
  return vocabulary;
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

/// Since transformers 5 LlamaTokenizer passes over how a model normalises text,
/// and over unigrams; the general class heeds them, but exists only there.
const char* tokenizer_class(const SentencePieceFacts& facts) {
  return facts.is_like_llama ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
}

}  // namespace

NamedTexts byte_tokenizer_files(std::int64_t max_length) {
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", byte_vocabulary()},
                      {"merges", Json::array()}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", Json::array()},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level()},
                          {"post_processor", nullptr},
                          {"decoder", byte_level()},
                          {"model", model}};
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"model_max_length", max_length},
                       {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

NamedTexts sentence_piece_files(std::string model,
                                const SentencePieceFacts& facts,
                                std::int64_t max_length) {
  Json config = {{"tokenizer_class", tokenizer_class(facts)},
                 {"model_max_length", max_length},
                 // Each text begins as SentencePiece itself begins it.
                 {"legacy", true},
                 {"add_bos_token", facts.specials.contains("bos")},
                 {"add_eos_token", false},
                 {"clean_up_tokenization_spaces", false}};
  Json map = Json::object();
  for (const char* name : {"bos", "eos", "unk", "pad"}) {
    const auto found = facts.specials.find(name);
    const std::string key = std::string(name) + "_token";
    config[key] = found == facts.specials.end() ? Json() : Json(found->second);
    map[key] = config[key];
  }
  return {{"tokenizer.model", std::move(model)},
          {"tokenizer_config.json", config.dump(2) + "\n"},
          {"special_tokens_map.json", map.dump(2) + "\n"}};
}

}  // namespace accordion
