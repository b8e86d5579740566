// SPDX-License-Identifier: BSD-3-Clause
#include "tests/data/sentence_piece_model.h"

#include <sentencepiece_trainer.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace accordion::testing {

std::string_view sentences() {
  return "A shard is a piece of a parameter that one rank owns.\n"
         "An all-gather brings the pieces together before forward.\n"
         "The reduction of a gradient leaves each rank its own piece.\n"
         "Nobody waits for a rank that is gone longer than the timeout.\n";
}

std::filesystem::path train_sentence_piece(const std::filesystem::path& folder,
                                           int vocab_size,
                                           std::string_view flags) {
  const std::filesystem::path text = folder / "sentences.txt";
  std::ofstream(text) << sentences();
  const std::string prefix =
      (folder / fmt::format("pieces-{}", vocab_size)).string();
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      fmt::format("--input={} --model_prefix={} --vocab_size={} "
                  "{} --model_type=bpe --minloglevel=3",
                  text.string(), prefix, vocab_size, flags));
  if (!status.ok()) {
    throw std::runtime_error(status.ToString());
  }
  return prefix + ".model";
}

}  // namespace accordion::testing
