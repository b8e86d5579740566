// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/corpus.h"

#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion {

Corpus Corpus::open(const std::filesystem::path& path,
                    double validation_fraction) {
  if (!(validation_fraction >= 0.0 && validation_fraction < 1.0)) {
    throw std::invalid_argument(
        fmt::format("[Corpus] validation_fraction is {}; it must be at least 0 "
                    "and less than 1.",
                    validation_fraction));
  }
  TextFile file = TextFile::open(path);
  const auto bytes = static_cast<double>(file.bytes().size());
  const auto held_out =
      static_cast<std::size_t>(std::floor(bytes * validation_fraction));
  const std::size_t training_bytes = file.bytes().size() - held_out;
  return {std::move(file), training_bytes};
}

}  // namespace accordion
