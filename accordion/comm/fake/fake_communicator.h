// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "accordion/comm/communicator.h"

namespace accordion {

/// Plays one rank of a world of any size, alone: every peer is taken to hold a
/// copy of this rank's data and to be always on time. So all pieces of an
/// all-gather are this rank's, and a reduction sums world_size copies of this
/// rank's operand. Counts calls and bytes as any backend does; nothing leaves
/// the process.
///
/// For schedules, memory and counts at world sizes that one has no machines
/// for.
std::unique_ptr<Communicator> make_fake_communicator(int rank, int world_size);

/// The same without memory (Communicator::has_memory), for tensors on meta and
/// models that no machine at hand could hold. What has memory, such as a number
/// that ranks agree on, is moved as by the fake one.
///
/// Memory  none; buffers take address space
std::unique_ptr<Communicator> make_meta_communicator(int rank, int world_size);

/// What every backend is in a world of one rank: the collectives come down to
/// conversions of local memory.
std::unique_ptr<Communicator> make_lone_communicator(
    std::string_view backend, std::chrono::milliseconds timeout);

}  // namespace accordion
