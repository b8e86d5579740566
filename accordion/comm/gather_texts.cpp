// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gather_texts.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accordion/comm/gather_values.h"

namespace accordion {

std::vector<std::string> gather_texts(Communicator& communicator,
                                      std::string_view mine,
                                      std::string_view label) {
  using Word = std::int32_t;
  const auto sizes = gather_values(
      communicator, static_cast<std::int64_t>(mine.size()), label);
  const auto words = static_cast<std::size_t>(
      (std::ranges::max(sizes) + static_cast<std::int64_t>(sizeof(Word)) - 1) /
      static_cast<std::int64_t>(sizeof(Word)));
  std::vector<std::string> texts(sizes.size());
  if (words == 0) {
    return texts;
  }
  std::vector<Word> local(words);
  std::memcpy(local.data(), mine.data(), mine.size());
  std::vector<Word> all(words * sizes.size());
  const GatherPart part{.local = local.data(),
                        .local_dtype = DType::Int32,
                        .full = all.data(),
                        .full_dtype = DType::Int32,
                        .numel = static_cast<std::int64_t>(words)};
  communicator.all_gather_into({&part, 1}, nullptr, label).wait();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank].assign(reinterpret_cast<const char*>(&all[rank * words]),
                       static_cast<std::size_t>(sizes[rank]));
  }
  return texts;
}

}  // namespace accordion
