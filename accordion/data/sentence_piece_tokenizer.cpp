// SPDX-License-Identifier: BSD-3-Clause
//
// The only file that knows the SentencePiece library.
#include "accordion/data/sentence_piece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "accordion/data/fingerprint.h"
#include "accordion/data/mapped_file.h"

namespace accordion {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& path)
      : name_(path.string()) {
    const MappedFile file = MappedFile::open(path);
    const auto status = processor_.LoadFromSerializedProto(file.text());
    // A message without a field that it needs may parse, as nothing does.
    if (!status.ok() || processor_.GetPieceSize() < 1) {
      throw std::invalid_argument(fmt::format(
          "[tokenizer] '{}' is no SentencePiece model. Set data.tokenizer to "
          "\"bytes\" or to a .model file of SentencePiece.",
          name_));
    }
    Fingerprint fingerprint;
    fingerprint.add(file.text());
    fingerprint_ = fingerprint.value();
  }

  [[nodiscard]] std::vector<std::int64_t> encode(
      std::string_view text) const override {
    std::vector<int> ids;
    check(processor_.Encode(text, &ids), "encode");
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    for (const std::int64_t token : tokens) {
      if (token < 0 || token >= vocab_size()) {
        throw std::invalid_argument(
            fmt::format("[tokenizer] Token {} is none of '{}', whose ids are "
                        "from 0 to {}.",
                        token, name_, vocab_size() - 1));
      }
    }
    std::string text;
    check(processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()),
                            &text),
          "decode");
    return text;
  }

  [[nodiscard]] std::int64_t vocab_size() const override {
    return processor_.GetPieceSize();
  }
  [[nodiscard]] std::optional<std::int64_t> bos() const override {
    return optional(processor_.bos_id());
  }
  [[nodiscard]] std::optional<std::int64_t> eos() const override {
    return optional(processor_.eos_id());
  }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    return fingerprint_;
  }
  [[nodiscard]] SentencePieceTraits traits() const {
    SentencePieceTraits traits;
    for (const auto& [name, id] : {std::pair("bos", processor_.bos_id()),
                                   std::pair("eos", processor_.eos_id()),
                                   std::pair("unk", processor_.unk_id()),
                                   std::pair("pad", processor_.pad_id())}) {
      if (id >= 0) {
        traits.specials.emplace(name, processor_.IdToPiece(id));
      }
    }
    // Spaces and ligatures show whether text is normalised.
    traits.is_like_llama = has_bytes_and_merges() &&
                           encode("a  b") != encode("a b") &&
                           encode("\uFB01") != encode("fi");
    return traits;
  }

 private:
  static std::optional<std::int64_t> optional(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int64_t>(id);
  }

  /// Scores of merges are their negated ranks; those of unigrams logarithms.
  [[nodiscard]] bool has_bytes_and_merges() const {
    bool has_bytes = false;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const float score = processor_.GetScore(id);
      has_bytes = has_bytes || processor_.IsByte(id);
      if (score != std::trunc(score)) {
        return false;
      }
    }
    return has_bytes;
  }

  void check(const sentencepiece::util::Status& status,
             std::string_view what) const {
    if (!status.ok()) {
      throw std::runtime_error(fmt::format("[tokenizer] '{}' could not {}: {}.",
                                           name_, what, status.ToString()));
    }
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<const Tokenizer> open_sentence_piece(
    const std::filesystem::path& model) {
  return std::make_unique<SentencePieceTokenizer>(model);
}

SentencePieceTraits sentence_piece_traits(const std::filesystem::path& model) {
  return SentencePieceTokenizer(model).traits();
}

}  // namespace accordion
