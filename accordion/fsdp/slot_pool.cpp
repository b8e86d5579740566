// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/slot_pool.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace accordion {

SlotMap SlotPool::fit(std::span<const std::int64_t> bytes) {
  // Largest first, so that a small slot does not use up a large buffer.
  std::vector<int> order(bytes.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int>(i);
  }
  std::stable_sort(order.begin(), order.end(), [bytes](int a, int b) {
    return bytes[static_cast<std::size_t>(a)] >
           bytes[static_cast<std::size_t>(b)];
  });
  SlotMap map(bytes.size(), -1);
  std::vector<int> used;
  for (const int slot : order) {
    const std::int64_t needed = bytes[static_cast<std::size_t>(slot)];
    Slot* found = smallest_free(needed, used);
    Slot& chosen = found != nullptr ? *found : allocate(needed);
    const int index = static_cast<int>(&chosen - slots_.data());
    used.push_back(index);
    map[static_cast<std::size_t>(slot)] = index;
  }
  return map;
}

CommBuffer& SlotPool::take(const SlotMap& map, int slot, std::int64_t bytes) {
  Slot* chosen = nullptr;
  if (slot != kAnySlot) {
    chosen = &slots_.at(
        static_cast<std::size_t>(map.at(static_cast<std::size_t>(slot))));
  }
  if (chosen == nullptr || chosen->taken || chosen->buffer->bytes() < bytes) {
    chosen = smallest_free(bytes, {});
  }
  if (chosen == nullptr) {
    chosen = &allocate(bytes);
  }
  chosen->taken = true;
  return *chosen->buffer;
}

void SlotPool::put_back(const CommBuffer& buffer) {
  const auto slot = std::find_if(
      slots_.begin(), slots_.end(),
      [&buffer](const Slot& s) { return s.buffer.get() == &buffer; });
  TORCH_INTERNAL_ASSERT(slot != slots_.end() && slot->taken,
                        "a buffer was put back that was not taken");
  slot->taken = false;
}

std::int64_t SlotPool::allocated_bytes() const {
  std::int64_t sum = 0;
  for (const Slot& slot : slots_) {
    sum += slot.buffer->bytes();
  }
  return sum;
}

std::int64_t SlotPool::taken_bytes() const {
  std::int64_t sum = 0;
  for (const Slot& slot : slots_) {
    sum += slot.taken ? slot.buffer->bytes() : 0;
  }
  return sum;
}

SlotPool::Slot* SlotPool::smallest_free(std::int64_t bytes,
                                        std::span<const int> except) {
  Slot* best = nullptr;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const bool excluded = std::find(except.begin(), except.end(),
                                    static_cast<int>(i)) != except.end();
    if (slot.taken || excluded || slot.buffer->bytes() < bytes) {
      continue;
    }
    if (best == nullptr || slot.buffer->bytes() < best->buffer->bytes()) {
      best = &slot;
    }
  }
  return best;
}

SlotPool::Slot& SlotPool::allocate(std::int64_t bytes) {
  slots_.push_back({make_buffer(bytes), false});
  return slots_.back();
}

std::unique_ptr<CommBuffer> SlotPool::make_buffer(std::int64_t bytes) {
  switch (kind_) {
    case Kind::Common:
      return communicator_->allocate_common(bytes, "unsharded parameters");
    case Kind::Private:
      return communicator_->allocate_private(bytes, "unsharded parameters");
    case Kind::Exported:
      return communicator_->allocate_exported(bytes, "unsharded gradients");
    case Kind::Shards:
      return communicator_->allocate_private(bytes, "sharded gradients");
  }
  TORCH_INTERNAL_ASSERT(false, "unknown kind of slot pool");
}

}  // namespace accordion
