// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "accordion/data/cache_file.h"
#include "accordion/data/document_table.h"
#include "accordion/data/sample_set.h"
#include "accordion/data/token_file.h"
#include "accordion/data/token_stream.h"
#include "accordion/data/tokenizer.h"

namespace accordion {

/// How tokens become samples.
enum class Packing : std::uint8_t {
  Stream,     ///< StreamWindows
  Documents,  ///< PackedDocuments
};

struct CorpusOptions {
  std::vector<std::string> paths;  ///< see find_data_files
  TokenDtype token_dtype = TokenDtype::Auto;
  Packing packing = Packing::Stream;
  std::string document_separator;  ///< of text; empty: a file is a document
  std::int64_t bos_token = -1;     ///< of token files; -1: none
  std::int64_t eos_token = -1;
  std::int64_t vocab_size = 256;  ///< ids must be below: the model's
  std::int64_t seq_len = 128;     ///< tokens of a sample, >= 1
  /// Part of the tokens, at the end, that is held out; in [0, 1).
  double validation_fraction = 0.0;
  bool has_validation = false;         ///< whether held-out samples are wanted
  std::filesystem::path cache_folder;  ///< for [Note: cache files]
};

/// The data of a run: its tokens, cut into samples to train on and, from the
/// tail, samples that are held out, so that training does not touch what
/// validation measures.
class Corpus {
 public:
  /// Throws what is wrong with the files as far as their headers tell, without
  /// making or reading caches. Cheap, and so called before ranks meet.
  static void check(const CorpusOptions& options, const Tokenizer& tokenizer);

  /// Opens the files, having made what caches are missing or stale: tokens of
  /// text unless the tokenizer is bytes, and the tables of packing. Where these
  /// are needed, one rank of a host opens first while the others wait.
  ///
  /// Throws std::invalid_argument for files or options that cannot be, or fewer
  ///        tokens than a sample needs; std::runtime_error when a cache cannot
  ///        be written or `stop` was requested
  static Corpus open(const CorpusOptions& options, const Tokenizer& tokenizer,
                     const std::stop_token& stop = {});

  /// Whether open() makes caches.
  static bool needs_caches(const CorpusOptions& options,
                           const Tokenizer& tokenizer);

  [[nodiscard]] const TokenStream& tokens() const { return *tokens_; }
  [[nodiscard]] const SampleSet& training() const { return *training_; }
  /// Null without has_validation.
  [[nodiscard]] const SampleSet* validation() const {
    return validation_.get();
  }
  /// Equal on two ranks that see the same files, cut the same way.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Corpus() = default;
  void cut_stream(const CorpusOptions& options, std::int64_t split);
  void cut_documents(const CorpusOptions& options, const DocumentMarks& marks,
                     std::int64_t split, const std::stop_token& stop);
  std::unique_ptr<const SampleSet> packed(const CorpusOptions& options,
                                          std::int64_t begin, std::int64_t end,
                                          std::uint64_t state);

  std::unique_ptr<TokenStream> tokens_;  // samples refer to it
  std::unique_ptr<PositionTable> documents_;
  std::vector<std::unique_ptr<PositionTable>> rows_;
  std::unique_ptr<const SampleSet> training_;
  std::unique_ptr<const SampleSet> validation_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace accordion
