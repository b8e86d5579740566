// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/memory.h"

namespace accordion::detail {

enum class BufferKind { Common, Exported };

/// What a buffer and the operations that use it share.
///
/// A use is one all-gather into a common buffer, or one reduction from an
/// exported one. Uses are the same on all ranks, so one number says for every
/// rank how far it is: Counter done(id) on that rank.
struct Segment {
  int id = 0;
  BufferKind kind = BufferKind::Common;
  std::string label;
  /// Only compared: buffers may be destroyed after it.
  const Communicator* communicator = nullptr;
  std::vector<std::shared_ptr<Mapping>> mappings;  ///< one, or one per rank
  std::uint64_t uses = 0;                          ///< begun by this rank
  std::uint64_t finished = 0;  ///< of those, completed by this rank
  CommOp last_op = CommOp::Allocate;
  std::uint64_t last_call = 0;

  /// Rank `rank`'s memory, as seen by this process.
  [[nodiscard]] std::byte* base(int rank) const {
    return mappings[mappings.size() == 1 ? 0 : static_cast<std::size_t>(rank)]
        ->data();
  }
};

class ShmBuffer : public CommBuffer {
 public:
  ShmBuffer(std::shared_ptr<Segment> segment, int rank, std::int64_t bytes)
      : CommBuffer(segment->base(rank), bytes), segment_(std::move(segment)) {}
  [[nodiscard]] const std::shared_ptr<Segment>& segment() const {
    return segment_;
  }

 private:
  std::shared_ptr<Segment> segment_;
};

}  // namespace accordion::detail
