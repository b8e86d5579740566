// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checkpoint_index_format.h"

namespace accordion::testing {

/// Any text, followed by the checksum that an index has as its last lines: what
/// gets past the checksum is for the other checks to find.
inline std::string sealed(std::string text) {
  const std::uint64_t checksum = checksum_of(std::as_bytes(std::span(text)));
  text += detail::kChecksumLine;
  return text + checksum_text(checksum) + "\"\n}\n";
}

}  // namespace accordion::testing
