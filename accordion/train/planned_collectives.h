// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "accordion/comm/communicator.h"
#include "accordion/comm/mesh_grid.h"
#include "accordion/fsdp/options.h"
#include "accordion/models/llama_config.h"
#include "accordion/train/planned_schedule.h"

namespace accordion {

/// Collectives of one kind that a rank takes part in.
///
/// Units  bytes as in CommCounters: the full tensors, in their dtype on the
///        wire, padding included
struct CollectiveTotal {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;

  void add(std::int64_t more_calls, std::int64_t more_bytes) {
    calls += more_calls;
    bytes += more_bytes;
  }
  bool operator==(const CollectiveTotal&) const = default;
};

/// Those of a pass or a step. A group of one rank does not communicate.
struct CollectiveTotals {
  CollectiveTotal all_gather = {};
  CollectiveTotal reduce_scatter = {};
  CollectiveTotal all_reduce = {};

  /// Adds `times` the totals of `other`.
  void add(const CollectiveTotals& other, std::int64_t times);
  bool operator==(const CollectiveTotals&) const = default;
};

/// What a rank will call in a pass, from the layouts of the units and the
/// pass's schedule alone.
[[nodiscard]] CollectiveTotals planned_collectives(
    const LlamaConfig& model, const FsdpOptions& options,
    std::span<const MeshAxis> axes, Microbatch microbatch);

/// What a communicator counted of them; nothing where it joins one rank.
[[nodiscard]] CollectiveTotals counted_collectives(
    const Communicator& communicator);

}  // namespace accordion
