// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/streams/stream_device.h"
#include "accordion/comm/streams/transport.h"

namespace accordion::detail {

struct StreamedOptions {
  std::string_view backend = "nccl";  ///< a literal
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Ranks compare what they call before each collective, over the host's
  /// communicator: a round trip a call.
  bool debug_calls = false;
  /// What errors call the ranks, by rank; empty: 0, 1, …
  std::vector<int> members = {};
  /// How often what is in flight is looked at; zero: never by itself.
  std::chrono::milliseconds watch_interval = std::chrono::milliseconds(100);
};

/// // [Note: streams]
/// Collectives on a device's memory are given to its queues, and the host goes
/// on. Gathers and reductions have a queue each. What waits for what:
///
///   an all-gather into a buffer   for the release of the buffer by its last
///                                 user, and for follow_caller
///   any other collective          for what the caller's queue had by then
///   the caller's queue            at Work::wait, for the collective; at
///                                 acquire, for the last one on the buffer
///
/// So a gather that is given out early runs beside what the caller computes,
/// although the caller's queue is full of it; only its slot has to be free. No
/// memory is handed to the allocator while a queue uses it: whoever frees it
/// does so behind a wait of the caller's queue, and buffers block in their
/// destructor. The allocator need not be told of other queues (recordStream),
/// which would keep memory for longer than it is needed.
///
/// Sums are taken by the transport, in place in `full` and in its dtype, and
/// then stored by one pass of ours that scales, rounds, adds to `local` and
/// sums squares, to where ReducePart::sum_of_squares points: device memory.
///
/// Parts in the host's memory, such as numbers that ranks agree on, go over
/// `host`, a communicator of the same ranks.
std::unique_ptr<Communicator> make_streamed_communicator(
    std::shared_ptr<StreamDevice> device, std::unique_ptr<Transport> transport,
    std::shared_ptr<Communicator> host, const StreamedOptions& options);

}  // namespace accordion::detail
