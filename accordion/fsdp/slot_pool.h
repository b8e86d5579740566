// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// Which buffer of a pool is slot i of a schedule.
using SlotMap = std::vector<int>;

/// The buffers into which units are gathered, or from or to which they are
/// reduced.
///
/// Sized by the schedule before a pass, so that passes allocate nothing; the
/// first pass, which has no schedule, and passes that diverge take what fits
/// and allocate the rest. All ranks do the same in the same order. Several
/// modules may share a pool.
class SlotPool {
 public:
  enum class Kind {
    Common,    ///< targets of all-gathers, shared by the ranks
    Private,   ///< targets of gathers over changing groups
    Exported,  ///< sources of reductions
    Shards,    ///< results of reductions, of this rank alone
  };

  SlotPool(Kind kind, std::shared_ptr<Communicator> communicator)
      : kind_(kind), communicator_(std::move(communicator)) {}

  /// Finds a free buffer of at least bytes[i] for each slot i of a schedule.
  ///
  /// Comm  one allocation for each buffer that is missing
  SlotMap fit(std::span<const std::int64_t> bytes);

  /// Takes the buffer that `map` has for slot `slot`. Without a slot, or where
  /// something else took it meanwhile, the smallest free buffer of at least
  /// `bytes`, or a new one.
  CommBuffer& take(const SlotMap& map, int slot, std::int64_t bytes);
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
  [[nodiscard]] std::unique_ptr<CommBuffer> make_buffer(std::int64_t bytes);

  Kind kind_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<Slot> slots_;
};

/// The pools of one module, or of several that share them.
struct SlotPools {
  SlotPool parameters;
  SlotPool gradients;
  SlotPool gradient_shards;
};

}  // namespace accordion
