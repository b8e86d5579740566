// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"

// What every backend must do, checked against closed forms. Each function is
// called by all ranks of `communicator` and reports through GoogleTest.
namespace accordion::testing {

/// Whether operands lie in CommBuffers or in ordinary memory.
enum class Memory { CommBuffers, Ordinary };

/// Gathers, reduce-scatters, all-reduces, broadcast and barrier over odd sizes,
/// several sections, all dtypes, with scale, accumulation and aliasing; sums of
/// squares of what reductions leave.
void check_collectives(Communicator& communicator, Memory memory);

/// Counters after one call of each kind.
void check_counters(Communicator& communicator);

/// Many rounds over few buffers with random pauses: a piece that is overwritten
/// before its last reader is done shows as a wrong value.
void check_slot_reuse(Communicator& communicator, int num_rounds);

/// Two sums of numbers whose order of summation shows in the last bits, equal
/// on every rank and to the sum in rank order; with several hosts, to the sum
/// of the sums of `ranks_per_host` ranks each; sums of squares that are those
/// of the values alone, bit for bit.
void check_sums_repeat(Communicator& communicator, Memory memory,
                       int ranks_per_host = 0);

/// Runs `body` for each communicator in a thread of its own.
void run_threads(std::vector<std::unique_ptr<Communicator>>& ranks,
                 const std::function<void(Communicator&)>& body);

/// What CommError (or another exception) says when `action` throws; fails the
/// test and returns "" when it does not.
std::string message_of(const std::function<void()>& action);

}  // namespace accordion::testing
