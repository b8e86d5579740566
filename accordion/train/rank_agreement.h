// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/offload/staged_blocks.h"
#include "accordion/train/metrics.h"

namespace accordion {

/// The element-wise sums of `values` over all ranks, the same bits everywhere.
///
/// Comm  one all-reduce of values.size() doubles
std::vector<double> sum_over_ranks(Communicator& world,
                                   std::span<const double> values,
                                   std::string_view label);

/// `value` of each rank, in the order of ranks.
///
/// Comm  one all-reduce of world_size doubles
std::vector<double> gather_over_ranks(Communicator& world, double value,
                                      std::string_view label);

/// What one rank does while others wait; returns early when asked to stop.
using RankJob = std::function<void(const std::stop_token& stop)>;

/// Runs `job`, if this rank has one, on a thread of its own, and returns on all
/// ranks when all jobs are done. Meanwhile ranks keep in touch, so that a job
/// may take hours while a rank that dies is noticed within the timeout.
///
/// Comm    an all-reduce of world_size doubles a second
/// Throws  std::runtime_error on every rank, with the message of the first rank
///         whose job failed; CommError. Other jobs are then asked to stop and
///         waited for.
void run_while_others_wait(Communicator& world, const RankJob& job,
                           std::string_view label);

/// Throws std::runtime_error on every rank where `value` differs between ranks;
/// the message says what it stands for, `what`, and which ranks differ from
/// rank 0.
///
/// Comm  two all-reduces of world_size doubles
void require_equal(Communicator& world, std::uint64_t value,
                   std::string_view what);

/// The text that `make` returns on rank 0, on every rank. Where it throws,
/// every rank throws std::runtime_error with its message, so that none is left
/// waiting.
///
/// Comm  three broadcasts
std::string text_from_rank_0(Communicator& world,
                             const std::function<std::string()>& make,
                             std::string_view label);

/// What offloading moved in a step on all ranks, from what it did on this one;
/// nullopt where nothing is offloaded.
///
/// Comm  as sum_over_ranks, where something is
std::optional<OffloadMetrics> offload_metrics(
    Communicator& world, const std::optional<OffloadCounters>& mine);

}  // namespace accordion
