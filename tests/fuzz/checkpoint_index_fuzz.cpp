// SPDX-License-Identifier: BSD-3-Clause
// An index of any bytes, with or without the checksum that belongs to them, is
// refused with a CheckpointError, or its ranges lie in their files, and it
// reads back the same when it is written.
#include "accordion/checkpoint/checkpoint_index.h"

#include <optional>
#include <string>

#include "accordion/checkpoint/safetensors_header.h"
#include "tests/checkpoint/sealed_index.h"
#include "tests/fuzz/fuzz_support.h"

using accordion::testing::require;

namespace {

std::optional<accordion::CheckpointIndex> parse(const std::string& text) {
  try {
    return accordion::parse_checkpoint_index(text, "index.json");
  } catch (const accordion::CheckpointError&) {
    return std::nullopt;  // as documented
  }
}

void check(const accordion::CheckpointIndex& index) {
  for (const auto& [name, tensor] : index.tensors) {
    const auto element =
        accordion::detail::safetensors_element_bytes(tensor.dtype);
    std::int64_t covered = 0;
    for (const accordion::StoredRange& range : tensor.ranges) {
      require(range.begin == covered && range.end >= covered);
      covered = range.end;
      const auto& file = index.files.at(static_cast<std::size_t>(range.file));
      require(range.offset + (range.end - range.begin) * element <= file.bytes);
    }
    require(covered == tensor.numel());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)parse(text);
  if (const auto index = parse(accordion::testing::sealed(text))) {
    check(*index);
    const std::string written = to_text(*index);
    const auto again = parse(written);
    require(again.has_value() && to_text(*again) == written);
  }
  return 0;
}
