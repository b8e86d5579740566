// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_data.h"

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "accordion/data/corpus_files.h"
#include "accordion/train/evaluation.h"
#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// Beside the run folder, so that the next run finds it.
fs::path cache_folder(const TrainConfig& config) {
  if (!config.data.cache_dir.empty()) {
    return config.data.cache_dir;
  }
  const fs::path runs = config.run.dir.empty()
                            ? fs::current_path() / "runs"
                            : fs::path(config.run.dir).parent_path();
  return runs / "token-cache";
}

TokenDtype token_dtype(const std::string& name) {
  if (name == "auto") {
    return TokenDtype::Auto;
  }
  return name == "uint16" ? TokenDtype::Uint16 : TokenDtype::Uint32;
}

CorpusOptions corpus_options(const TrainConfig& config,
                             std::int64_t vocab_size) {
  const bool strided = config.data.order == "strided";
  return {
      .paths = config.data.path,
      .token_dtype = token_dtype(config.data.token_dtype),
      .packing = config.data.packing == "documents" ? Packing::Documents
                                                    : Packing::Stream,
      .document_separator = config.data.document_separator,
      .bos_token = config.data.bos_token,
      .eos_token = config.data.eos_token,
      .vocab_size = vocab_size,
      .seq_len = config.data.seq_len,
      .validation_fraction = strided ? 0.0 : config.data.validation_fraction,
      .has_validation = config.eval.every > 0,
      .cache_folder = cache_folder(config)};
}

BatchSampler make_sampler(const TrainConfig& config, const Corpus& corpus,
                          const DataReader& reader) {
  return {corpus.training(),
          {.order = config.data.order == "strided" ? SampleOrder::Strided
                                                   : SampleOrder::Shuffled,
           .batch_size = config.train.batch_size,
           .grad_accumulation = config.train.grad_accumulation,
           .rank = reader.rank,
           .world_size = reader.world_size,
           .seed = static_cast<std::uint64_t>(config.run.seed)}};
}

std::vector<Batch> validation_batches(const TrainConfig& config,
                                      const Corpus& corpus,
                                      const DataReader& reader) {
  if (corpus.validation() == nullptr) {
    return {};
  }
  return evaluation_batches(*corpus.validation(),
                            {.sequences = config.eval.sequences,
                             .batch_size = config.train.batch_size,
                             .rank = reader.rank,
                             .world_size = reader.world_size});
}

/// A tokenizer is used on text, and on the prompt.
void check_vocabulary(const TrainConfig& config, const Tokenizer& tokenizer,
                      bool hold_tokens, std::int64_t vocab_size) {
  const bool has_prompt = !config.sample.prompt.empty();
  if ((!hold_tokens || has_prompt) && vocab_size < tokenizer.vocab_size()) {
    throw std::invalid_argument(fmt::format(
        "[train] '{}' has vocab_size {}, but data.tokenizer \"{}\" needs at "
        "least {}. Raise one, or choose another tokenizer.",
        config.model.config, vocab_size, config.data.tokenizer,
        tokenizer.vocab_size()));
  }
  if (hold_tokens && has_prompt && reads_bytes(tokenizer) &&
      vocab_size > tokenizer.vocab_size()) {
    throw std::invalid_argument(
        "[train] sample.prompt is text, but data.path holds token ids of a "
        "tokenizer that is not known. Name its model in data.tokenizer, or "
        "leave sample.prompt out.");
  }
}

}  // namespace

void check_data(const TrainConfig& config, const Tokenizer& tokenizer,
                std::int64_t vocab_size) {
  const CorpusOptions options = corpus_options(config, vocab_size);
  const bool hold_tokens = find_corpus_files(options, tokenizer).hold_tokens;
  check_vocabulary(config, tokenizer, hold_tokens, vocab_size);
  Corpus::check(options, tokenizer);
}

RunData open_data(const TrainConfig& config, const Tokenizer& tokenizer,
                  const DataReader& reader, const std::stop_token& stop) {
  Corpus corpus =
      Corpus::open(corpus_options(config, reader.vocab_size), tokenizer, stop);
  const BatchSampler sampler = make_sampler(config, corpus, reader);
  std::vector<Batch> validation = validation_batches(config, corpus, reader);
  return {std::move(corpus), sampler, std::move(validation)};
}

RunData open_data_together(const TrainConfig& config,
                           const Tokenizer& tokenizer, std::int64_t vocab_size,
                           const Rendezvous& rendezvous, Communicator& world) {
  const CorpusOptions options = corpus_options(config, vocab_size);
  if (Corpus::needs_caches(options, tokenizer)) {
    RankJob job;
    if (rendezvous.local_rank == 0) {
      job = [&](const std::stop_token& stop) {
        Corpus::open(options, tokenizer, stop);
      };
    }
    run_while_others_wait(world, job, "preparing data");
  }
  // On every rank, so that all throw where one cannot read its files.
  std::optional<RunData> data;
  run_while_others_wait(
      world,
      [&](const std::stop_token& stop) {
        data = open_data(config, tokenizer,
                         {.rank = rendezvous.rank,
                          .world_size = rendezvous.world_size,
                          .vocab_size = vocab_size},
                         stop);
      },
      "opening data");
  require_equal(world, data->corpus.fingerprint(),
                "files of data.path, their sizes or how they are cut");
  return std::move(*data);
}

TrainConfig with_steps(const TrainConfig& config, const BatchSampler& sampler) {
  TrainConfig resolved = config;
  if (config.train.epochs > 0) {
    resolved.train.steps = sampler.steps_of_epochs(config.train.epochs);
    resolved.train.epochs = 0;
    validate_config(resolved,
                    fmt::format("train.epochs = {}", config.train.epochs));
  }
  return resolved;
}

std::string describe(const RunData& data, const TrainConfig& config) {
  const TokenStream& tokens = data.corpus.tokens();
  std::string text = fmt::format(
      "{} tokens in {} file(s); {} samples an epoch, {} a step", tokens.size(),
      tokens.files().size(), data.sampler.samples_per_epoch(),
      data.sampler.samples_per_step());
  if (config.train.steps > 0) {
    const auto samples = static_cast<double>(config.train.steps *
                                             data.sampler.samples_per_step());
    text += fmt::format(
        "; {} steps are {:.2f} epochs", config.train.steps,
        samples / static_cast<double>(data.sampler.samples_per_epoch()));
  }
  return text;
}

std::int64_t tokens_per_rank(const TrainConfig& config) {
  return config.train.batch_size * config.train.grad_accumulation *
         config.data.seq_len;
}

}  // namespace accordion
