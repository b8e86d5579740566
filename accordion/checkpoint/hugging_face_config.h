// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The JSON files of a Hugging Face folder beside weights and tokenizer.
namespace accordion {

/// Ids that begin and end a document, where there are such.
struct DocumentTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
};

/// config.json: the model's own, every key kept, with what transformers needs
/// to load it as a LlamaForCausalLM with weights of `dtype` (as safetensors
/// spells it). Where it names no token that begins or ends a document, `tokens`
/// do; null where there is none, as transformers would otherwise take 1 and 2.
///
/// Throws CheckpointError for text that is no JSON object; `place` stands for
///        it in errors
std::string hugging_face_config(std::string_view config, std::string_view dtype,
                                const DocumentTokens& tokens,
                                const std::string& place);

/// generation_config.json for a config.json of ours.
std::string generation_config(std::string_view config);

}  // namespace accordion
