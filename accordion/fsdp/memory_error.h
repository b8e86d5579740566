// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "accordion/schedule/memory_by_kind.h"

namespace accordion {

/// A rank would have exceeded its limit of memory, or got no more.
///
/// Where one rank throws it the others end with CommError, as for any error of
/// a peer.
class MemoryError : public std::runtime_error {
 public:
  struct Facts {
    MemoryByKind held = {};      ///< before the request
    std::int64_t requested = 0;  ///< bytes; 0: what is held is too much already
    std::optional<std::int64_t> limit = {};  ///< nullopt: no limit was set
    /// What the allocator said; empty: it was not asked.
    std::string failure = {};
    /// "backward of unit 'layers.3' (start reduce)"
    std::string place = {};
  };

  /// `advice`: sentences that say what to do.
  explicit MemoryError(Facts facts, const std::string& advice = {});

  [[nodiscard]] const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

}  // namespace accordion
