// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/hugging_face_config.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/checked_json.h"
#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion {
namespace {

using Json = nlohmann::ordered_json;

/// Nested objects, such as rope_parameters, are shallow.
constexpr int kMaxDepth = 16;

std::string torch_dtype(std::string_view dtype) {
  if (dtype == "BF16") {
    return "bfloat16";
  }
  if (dtype == "F16") {
    return "float16";
  }
  return dtype == "F64" ? "float64" : "float32";
}

std::string architecture(const Json& model_type) {
  if (model_type == "mistral") {
    return "MistralForCausalLM";
  }
  return model_type == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
}

void set_where_absent(Json& config, const char* key,
                      std::optional<std::int64_t> token) {
  if (!config.contains(key)) {
    config[key] = token ? Json(*token) : Json();
  }
}

}  // namespace

std::string hugging_face_config(std::string_view config, std::string_view dtype,
                                const DocumentTokens& tokens,
                                const std::string& place) {
  (void)detail::parse_checked_json(config, place, kMaxDepth);
  Json object = Json::parse(config);  // in the order of the user's file
  if (!object.contains("model_type")) {
    object["model_type"] = "llama";
  }
  object["architectures"] = {architecture(object["model_type"])};
  // The old name and the new one: each release of transformers reads one.
  object["torch_dtype"] = torch_dtype(dtype);
  object["dtype"] = torch_dtype(dtype);
  set_where_absent(object, "bos_token_id", tokens.bos);
  set_where_absent(object, "eos_token_id", tokens.eos);
  return object.dump(2) + "\n";
}

std::string generation_config(std::string_view config) {
  const Json object = Json::parse(config);
  Json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (object.contains(key) && !object[key].is_null()) {
      generation[key] = object[key];
    }
  }
  return generation.dump(2) + "\n";
}

}  // namespace accordion
