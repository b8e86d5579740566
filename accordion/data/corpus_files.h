// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <vector>

#include "accordion/data/corpus.h"

namespace accordion {

/// The files of a run, of one kind.
struct CorpusFiles {
  std::vector<std::filesystem::path> paths;
  bool hold_tokens = false;  ///< else text
};

/// Finds the files and holds the options to their kind.
///
/// Throws std::invalid_argument for files that are not there or of two kinds,
///        or an option that says nothing of files of this kind
CorpusFiles find_corpus_files(const CorpusOptions& options,
                              const Tokenizer& tokenizer);

/// How documents in these files are told apart.
///
/// Throws std::invalid_argument where a separator was replaced by no id, as the
///        tokenizer has neither a begin nor an end token
DocumentMarks document_marks(const CorpusOptions& options,
                             const CorpusFiles& files,
                             const Tokenizer& tokenizer);

/// Whether text is read as it is.
bool reads_bytes(const Tokenizer& tokenizer);

}  // namespace accordion
