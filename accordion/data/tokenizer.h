// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accordion {

/// How text becomes token ids, and back.
///
/// Threads  const functions may be called from several at once
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of a text, without begin or end tokens.
  [[nodiscard]] virtual std::vector<std::int64_t> encode(
      std::string_view text) const = 0;

  /// The text of ids; begin and end tokens have none.
  ///
  /// Throws std::invalid_argument for an id outside [0, vocab_size())
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;

  /// Ids are from 0 to vocab_size() - 1.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;

  /// The id that begins, and that ends a document; none where the vocabulary
  /// has no such id.
  [[nodiscard]] virtual std::optional<std::int64_t> bos() const = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> eos() const = 0;

  /// Differs where ids may differ: part of the name of what is kept of them.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
};

/// The tokenizer that data.tokenizer names: "bytes", or a SentencePiece model.
///
/// Throws std::invalid_argument that names the file when it cannot be read or
///        is no model
std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name);

}  // namespace accordion
