// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/corpus.h"

#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "accordion/data/corpus_files.h"
#include "accordion/data/document_table.h"
#include "accordion/data/fingerprint.h"
#include "accordion/data/packed_documents.h"
#include "accordion/data/token_cache.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

void check_range(const CorpusOptions& options) {
  const double fraction = options.validation_fraction;
  if (!(fraction >= 0.0 && fraction < 1.0) || options.seq_len < 1) {
    throw std::invalid_argument(fmt::format(
        "[data] validation_fraction is {} and seq_len {}; they must be at "
        "least 0 and less than 1, and at least 1.",
        fraction, options.seq_len));
  }
}

TokenFile open_file(const fs::path& path, const CorpusFiles& files,
                    const CorpusOptions& options, const Tokenizer& tokenizer,
                    const std::stop_token& stop) {
  if (files.hold_tokens) {
    return inspect_token_file(path, options.token_dtype);
  }
  if (reads_bytes(tokenizer)) {
    return inspect_text_file(path);
  }
  return cached_tokens(path, tokenizer,
                       {.folder = options.cache_folder,
                        .document_separator = options.document_separator},
                       stop);
}

/// Of how the stream is made of files and cut; equal on all hosts.
std::uint64_t layout_fingerprint(const TokenStream& stream,
                                 const CorpusOptions& options) {
  Fingerprint fingerprint;
  for (const TokenFile& file : stream.files()) {
    fingerprint.add(static_cast<std::uint64_t>(file.count));
    fingerprint.add(static_cast<std::uint64_t>(file.width));
  }
  fingerprint.add(static_cast<std::uint64_t>(options.packing));
  fingerprint.add(static_cast<std::uint64_t>(options.seq_len));
  fingerprint.add(
      static_cast<std::uint64_t>(options.validation_fraction * 1e9));
  return fingerprint.value();
}

/// Of names, sizes and times of change of the files, and what tells documents
/// apart in them.
std::uint64_t documents_fingerprint(const TokenStream& stream,
                                    const DocumentMarks& marks) {
  Fingerprint fingerprint;
  for (const TokenFile& file : stream.files()) {
    fingerprint.add(file.path.native());
    fingerprint.add(file_state(file.path));
    fingerprint.add(static_cast<std::uint64_t>(file.width));
  }
  fingerprint.add(static_cast<std::uint64_t>(marks.bos.value_or(-1)));
  fingerprint.add(static_cast<std::uint64_t>(marks.eos.value_or(-1)));
  fingerprint.add(marks.separator);
  return fingerprint.value();
}

/// The table of that fingerprint, written by `fill` where there is none.
std::unique_ptr<PositionTable> table(
    const fs::path& folder, const char* name, std::uint64_t fingerprint,
    const std::function<void(CacheWriter&)>& fill) {
  const fs::path path =
      folder / fmt::format("{}-{:016x}.positions", name, fingerprint);
  const auto header = read_cache_header(path);
  if (!header || header->width != 8 || header->fingerprint != fingerprint) {
    CacheWriter writer(path, 8, fingerprint);
    fill(writer);
    writer.commit();
  }
  return std::make_unique<PositionTable>(PositionTable::open(path));
}

/// Throws where `part` of the data does not fill a sample, or, of documents,
/// holds no target.
void check_length(const char* part, std::int64_t tokens,
                  const CorpusOptions& options) {
  const std::int64_t needed =
      options.packing == Packing::Stream ? options.seq_len + 1 : 2;
  if (tokens < needed) {
    throw std::invalid_argument(fmt::format(
        "[data] The {} part is too short: {} tokens, but data.seq_len {} needs "
        "at least {}. Use more data, lower data.seq_len, or change "
        "data.validation_fraction; eval.every = 0 needs no held-out part.",
        part, tokens, options.seq_len, needed));
  }
}

}  // namespace

bool Corpus::needs_caches(const CorpusOptions& options,
                          const Tokenizer& tokenizer) {
  return options.packing == Packing::Documents ||
         !(reads_bytes(tokenizer) ||
           find_corpus_files(options, tokenizer).hold_tokens);
}

void Corpus::check(const CorpusOptions& options, const Tokenizer& tokenizer) {
  if (!needs_caches(options, tokenizer)) {
    open(options, tokenizer);
    return;
  }
  check_range(options);
  const CorpusFiles files = find_corpus_files(options, tokenizer);
  for (const fs::path& path : files.paths) {
    if (files.hold_tokens) {
      inspect_token_file(path, options.token_dtype);
    } else {
      inspect_text_file(path);
    }
  }
  if (options.packing == Packing::Documents) {
    document_marks(options, files, tokenizer);
  }
}

Corpus Corpus::open(const CorpusOptions& options, const Tokenizer& tokenizer,
                    const std::stop_token& stop) {
  check_range(options);
  const CorpusFiles files = find_corpus_files(options, tokenizer);
  std::vector<TokenFile> token_files;
  for (const fs::path& path : files.paths) {
    token_files.push_back(open_file(path, files, options, tokenizer, stop));
  }
  Corpus corpus;
  corpus.tokens_ = std::make_unique<TokenStream>(
      std::move(token_files),
      TokenStreamOptions{.vocab_size = options.vocab_size});
  const std::int64_t size = corpus.tokens_->size();
  const auto split =
      size - static_cast<std::int64_t>(std::floor(static_cast<double>(size) *
                                                  options.validation_fraction));
  check_length("training", split, options);
  if (options.has_validation) {
    check_length("held-out", size - split, options);
  }
  if (options.packing == Packing::Stream) {
    corpus.cut_stream(options, split);
  } else {
    corpus.cut_documents(options, document_marks(options, files, tokenizer),
                         split, stop);
  }
  corpus.fingerprint_ = layout_fingerprint(*corpus.tokens_, options);
  return corpus;
}

void Corpus::cut_stream(const CorpusOptions& options, std::int64_t split) {
  training_ = std::make_unique<StreamWindows>(
      TokenRange{.source = tokens_.get(), .begin = 0, .end = split},
      options.seq_len);
  if (options.has_validation) {
    validation_ = std::make_unique<StreamWindows>(
        TokenRange{
            .source = tokens_.get(), .begin = split, .end = tokens_->size()},
        options.seq_len);
  }
}

void Corpus::cut_documents(const CorpusOptions& options,
                           const DocumentMarks& marks, std::int64_t split,
                           const std::stop_token& stop) {
  const std::uint64_t state = documents_fingerprint(*tokens_, marks);
  documents_ =
      table(options.cache_folder, "documents", state, [&](CacheWriter& writer) {
        find_documents(*tokens_, marks, writer, stop);
      });
  training_ = packed(options, 0, split, state);
  if (options.has_validation) {
    validation_ = packed(options, split, tokens_->size(), state);
  }
}

std::unique_ptr<const SampleSet> Corpus::packed(const CorpusOptions& options,
                                                std::int64_t begin,
                                                std::int64_t end,
                                                std::uint64_t state) {
  Fingerprint fingerprint;
  fingerprint.add(state);
  fingerprint.add(static_cast<std::uint64_t>(begin));
  fingerprint.add(static_cast<std::uint64_t>(end));
  fingerprint.add(static_cast<std::uint64_t>(options.seq_len));
  rows_.push_back(table(options.cache_folder, "rows", fingerprint.value(),
                        [&](CacheWriter& writer) {
                          pack_documents(documents_->values(), begin, end,
                                         options.seq_len, writer);
                        }));
  return std::make_unique<PackedDocuments>(
      *tokens_, documents_->values(), rows_.back()->values(), options.seq_len);
}

}  // namespace accordion
