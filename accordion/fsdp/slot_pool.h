// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// The buffers into which units are gathered, or from which they are reduced.
///
/// Sized by the schedule before a step, so that steps allocate nothing; the
/// first step, which has no schedule, and steps that diverge take what fits and
/// allocate the rest. All ranks do the same in the same order.
class SlotPool {
 public:
  enum class Kind {
    Parameters,  ///< common buffers: targets of all-gathers
    Gradients,   ///< exported buffers: sources of reductions
  };

  SlotPool(Kind kind, Communicator& communicator)
      : kind_(kind), communicator_(communicator) {}

  /// Has a buffer of at least bytes[i] for each slot i of a schedule, from now
  /// on called slot i.
  ///
  /// Requires  no buffer is taken
  /// Comm      one allocation for each buffer that is missing
  void fit(std::span<const std::int64_t> bytes);

  /// Takes the buffer of the schedule's slot `slot`. Without a slot, or where
  /// an evaluation in between took it, the smallest free buffer of at least
  /// `bytes`, or a new one.
  CommBuffer& take(int slot, std::int64_t bytes);
  static constexpr int kAnySlot = -1;
  void put_back(const CommBuffer& buffer);

  /// Bytes of all buffers, and of those that are taken.
  [[nodiscard]] std::int64_t allocated_bytes() const;
  [[nodiscard]] std::int64_t taken_bytes() const;

 private:
  struct Slot {
    std::unique_ptr<CommBuffer> buffer;
    bool taken = false;
  };

  Slot* smallest_free(std::int64_t bytes, std::span<const int> except);
  Slot& allocate(std::int64_t bytes);

  Kind kind_;
  Communicator& communicator_;
  std::vector<Slot> slots_;
  std::vector<int> scheduled_;  // slot of the schedule -> index into slots_
};

}  // namespace accordion
