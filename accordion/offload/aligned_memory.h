// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "accordion/comm/shm/memory.h"

namespace accordion::detail {

/// Zeroed memory that starts at a multiple of kOffloadAlignment, every page
/// present, in huge pages where possible.
class AlignedMemory {
 public:
  /// Throws OffloadError that says for what `bytes` are not there.
  AlignedMemory(std::int64_t bytes, std::string_view what);

  [[nodiscard]] std::span<std::byte> part(std::int64_t offset,
                                          std::int64_t bytes) const;

 private:
  std::optional<Mapping> mapping_;  // none for no bytes
};

}  // namespace accordion::detail
