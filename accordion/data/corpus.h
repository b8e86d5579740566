// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "accordion/data/text_file.h"

namespace accordion {

/// A text and its two parts: the head to train on, and the tail that is held
/// out, so that no window of training touches what validation measures.
class Corpus {
 public:
  /// Opens `path` and holds out the last `validation_fraction` of its bytes.
  ///
  /// Throws std::invalid_argument for a file that cannot be read, or a fraction
  ///        outside [0, 1)
  static Corpus open(const std::filesystem::path& path,
                     double validation_fraction);

  /// The whole text.
  [[nodiscard]] std::span<const std::uint8_t> text() const {
    return file_.bytes();
  }
  [[nodiscard]] std::span<const std::uint8_t> training() const {
    return text().first(training_bytes_);
  }
  /// Empty where validation_fraction is 0.
  [[nodiscard]] std::span<const std::uint8_t> validation() const {
    return text().subspan(training_bytes_);
  }

 private:
  Corpus(TextFile file, std::size_t training_bytes)
      : file_(std::move(file)), training_bytes_(training_bytes) {}
  TextFile file_;
  std::size_t training_bytes_;
};

}  // namespace accordion
