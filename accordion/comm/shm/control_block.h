// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "accordion/comm/communicator.h"
#include "accordion/comm/cores.h"

// [Note: shm protocol] Ranks talk through one block of shared memory with a row
// per rank. A rank writes its own row only, and a row holds counters that only
// grow. Whatever a rank waits for has one form: "counter i of every rank is at
// least n". What a collective publishes, in this order:
//
//   posted(op)   the descriptor of call n of this kind lies in the ring, so the
//                peers can check that they called the same
//   ready(op)    the data of call n may be read
//   counters of the staging area, of all-reduce's second phase, of allocations
//   done(b)      this rank no longer reads use n of buffer b
//
// A counter is raised with release order after the data it stands for, and read
// with acquire order before that data is used. `event` is raised after any
// counter, and is what sleepers sleep on (futex): a sleeper reads `event`, then
// the counters, then sleeps unless `event` moved; a waker raises the counter,
// then `event`, then looks for sleepers. In the single order of these
// operations one of the two sees the other.
//
// A descriptor slot is reused after kRingSize calls. A rank completes the calls
// of one kind in order and has at most kMaxOutstanding of them in flight, so
// when it posts call s, every peer has posted s - kMaxOutstanding and completed
// s - 2 * kMaxOutstanding = s - kRingSize: nobody needs the slot's old content.
namespace accordion::detail {

inline constexpr int kMaxOutstanding = 64;
inline constexpr int kRingSize = 2 * kMaxOutstanding;
inline constexpr int kMaxBuffers = 4096;
inline constexpr int kMaxWorldSize = 240;  // descriptors in one socket message

/// What every rank must have called alike.
struct Descriptor {
  std::array<char, 64> label;  ///< the first 63 characters, zero-terminated
  std::int64_t bytes;
  std::uint64_t parts_hash;  ///< of the whole label and the shape of each part
};

/// Indexes of RankRow::counters.
using Counter = int;
constexpr Counter posted(CommOp op) {
  return static_cast<int>(op);
}
constexpr Counter ready(CommOp op) {
  return kNumCommOps + posted(op);
}
inline constexpr Counter kReduced = 2 * kNumCommOps;
inline constexpr Counter kStageWritten = kReduced + 1;
inline constexpr Counter kStageRead = kReduced + 2;
inline constexpr Counter kAgreed = kReduced + 3;
inline constexpr Counter kRelayed = kReduced + 4;
inline constexpr Counter kFirstBuffer = kReduced + 5;
constexpr Counter done(int buffer) {
  return kFirstBuffer + buffer;
}
inline constexpr int kNumCounters = kFirstBuffer + kMaxBuffers;

enum class RankState : std::uint32_t { Running, Left, Failed };

/// What one rank tells its peers; written by that rank only.
struct alignas(64) RankRow {
  std::array<std::atomic<std::uint64_t>, kNumCounters> counters;
  /// What the rank is blocked on, see pack_blocked(); 0 when it is not.
  std::atomic<std::uint64_t> blocked;
  /// Rounds of the loop in which it is blocked.
  std::atomic<std::uint64_t> heartbeat;
  /// The call it made last: op in the high byte, number in the rest.
  std::atomic<std::uint64_t> last_call;
  std::atomic<RankState> state;
  /// The peer with which it disagrees, plus one; set before `state`.
  std::atomic<std::uint32_t> disagrees_with;
  pid_t pid;
  /// Where the rank may run: CoreSet::words, all zero before it came.
  std::array<std::atomic<std::uint64_t>, CoreSet::Words().size()> cores;
  std::array<char, 1024> failure;  ///< why `state` is Failed
  /// Outcome of step n of an allocation in slot n % 2; empty: success.
  std::array<std::array<char, 512>, 2> outcome;
  std::array<std::array<Descriptor, kRingSize>, kNumCommOps> ring;
};

struct alignas(64) ControlBlock {
  std::atomic<std::uint32_t> event;
  alignas(64) std::atomic<std::uint32_t> sleepers;
  // RankRow[world_size] follow.

  [[nodiscard]] RankRow& row(int rank) {
    return reinterpret_cast<RankRow*>(this + 1)[rank];
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

[[nodiscard]] constexpr std::int64_t control_block_bytes(int world_size) {
  return static_cast<std::int64_t>(sizeof(ControlBlock)) +
         world_size * static_cast<std::int64_t>(sizeof(RankRow));
}

/// "Counter is at least threshold on every rank", never 0.
constexpr std::uint64_t pack_blocked(Counter counter, std::uint64_t threshold) {
  return static_cast<std::uint64_t>(counter + 1) << 48 | threshold;
}
constexpr Counter blocked_counter(std::uint64_t blocked) {
  return static_cast<Counter>(blocked >> 48) - 1;
}
constexpr std::uint64_t blocked_threshold(std::uint64_t blocked) {
  return blocked & 0xffffffffffff;
}

}  // namespace accordion::detail
