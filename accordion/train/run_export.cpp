// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_export.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "accordion/checkpoint/find_checkpoint.h"
#include "accordion/checkpoint/hugging_face_config.h"
#include "accordion/checkpoint/hugging_face_tokenizer.h"
#include "accordion/comm/cores.h"
#include "accordion/data/mapped_file.h"
#include "accordion/data/sentence_piece_tokenizer.h"
#include "accordion/data/tokenizer.h"
#include "accordion/models/llama_config.h"
#include "accordion/models/llama_parameters.h"
#include "accordion/train/run_position.h"
#include "accordion/train/train_config.h"

namespace accordion {
namespace {

std::string model_config(const CheckpointReader& checkpoint) {
  const std::string* const text =
      text_value(checkpoint.index().values, kModelConfigText);
  if (text == nullptr) {
    throw CheckpointError(fmt::format(
        "[export] '{}' holds no text 'model/config.json', which describes the "
        "model. Only checkpoints of `accordion train` can be exported.",
        checkpoint.folder().string()));
  }
  return *text;
}

/// Data of token files, as far as the configuration tells.
bool names_token_files(const TrainConfig::Data& data) {
  return data.bos_token >= 0 || data.eos_token >= 0 ||
         data.token_dtype != "auto" ||
         std::ranges::any_of(data.path, [](const std::string& path) {
           return path.ends_with(".bin");
         });
}

/// The name of the tokenizer; "none" where it is not known.
std::string tokenizer_name(const std::optional<TrainConfig>& config,
                           const LlamaConfig& model,
                           const ExportOptions& options) {
  if (!options.tokenizer.empty() || !config) {
    return options.tokenizer.empty() ? "none" : options.tokenizer;
  }
  // Token ids that bytes are the default name for.
  if (config->data.tokenizer == "bytes" && names_token_files(config->data) &&
      model.vocab_size != 256) {
    return "none";
  }
  return config->data.tokenizer;
}

NamedTexts tokenizer_files(const std::string& name, const LlamaConfig& model) {
  if (name == "none") {
    return {};
  }
  if (name == "bytes") {
    return byte_tokenizer_files(model.max_position_embeddings);
  }
  SentencePieceTraits traits = sentence_piece_traits(name);
  return sentence_piece_files(std::string(MappedFile::open(name).text()),
                              {.specials = std::move(traits.specials),
                               .is_like_llama = traits.is_like_llama},
                              model.max_position_embeddings);
}

DocumentTokens document_tokens(const std::optional<TrainConfig>& config,
                               const std::string& tokenizer) {
  if (tokenizer != "none") {
    const auto opened = open_tokenizer(tokenizer);
    if (opened->bos() || opened->eos()) {
      return {.bos = opened->bos(), .eos = opened->eos()};
    }
  }
  const auto known = [](std::int64_t id) {
    return id < 0 ? std::nullopt : std::optional(id);
  };
  return config ? DocumentTokens{.bos = known(config->data.bos_token),
                                 .eos = known(config->data.eos_token)}
                : DocumentTokens{};
}

std::vector<ParameterShape> parameters_of(const LlamaConfig& model) {
  std::vector<ParameterShape> parameters;
  for (LlamaParameter& parameter : llama_parameters(model)) {
    parameters.push_back(
        {std::move(parameter.name), std::move(parameter.shape)});
  }
  return parameters;
}

/// What config.json calls the dtype of weights that keep theirs: that of the
/// first, as transformers does.
std::string weights_dtype(const CheckpointReader& checkpoint,
                          const HuggingFaceFolder& content) {
  return weights_of(checkpoint, content.parameters, content.dtype)
      .front()
      .dtype;
}

HuggingFaceFolder folder_content(const CheckpointReader& checkpoint,
                                 const ExportOptions& options) {
  const std::string place = (checkpoint.folder() / "index.json").string();
  const std::string text = model_config(checkpoint);
  const LlamaConfig model =
      LlamaConfig::from_json(text, place + ", model/config.json");
  std::optional<TrainConfig> config;
  if (const std::string* const toml =
          text_value(checkpoint.index().values, kConfigText)) {
    config = parse_config(*toml, place + ", trainer/config");
  }
  const std::string tokenizer = tokenizer_name(config, model, options);
  HuggingFaceFolder content{.parameters = parameters_of(model),
                            .dtype = options.dtype,
                            .max_shard_bytes = options.max_shard_bytes,
                            .texts = tokenizer_files(tokenizer, model)};
  const std::string json =
      hugging_face_config(text, weights_dtype(checkpoint, content),
                          document_tokens(config, tokenizer), place);
  content.texts["config.json"] = json;
  content.texts["generation_config.json"] = generation_config(json);
  content.num_threads = options.num_threads > 0
                            ? options.num_threads
                            : CoreSet::of_this_thread().count();
  return content;
}

}  // namespace

ExportResult export_run(const std::filesystem::path& run_or_checkpoint,
                        const std::filesystem::path& to,
                        const ExportOptions& options) {
  check_can_make_folder(to);  // an error before the work
  const CheckpointReader checkpoint(find_checkpoint(run_or_checkpoint));
  const HuggingFaceFolder content = folder_content(checkpoint, options);
  return {.folder = write_hugging_face_folder(checkpoint, content, to),
          .checkpoint = checkpoint.folder(),
          .has_tokenizer = content.texts.contains("tokenizer_config.json")};
}

}  // namespace accordion
