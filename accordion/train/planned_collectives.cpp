// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/planned_collectives.h"

#include <vector>

#include "accordion/fsdp/scalar_type.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/models/llama.h"
#include "accordion/module/meta_init.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {
namespace {

/// Ranks of the groups that a unit communicates in.
struct GroupSizes {
  int gather = 1;
  int reduce = 1;
  int replicate = 1;
};

GroupSizes group_sizes(const FsdpOptions& options,
                       std::span<const MeshAxis> axes) {
  const int shard = axis_size(axes, "shard");
  const int replicas = axis_size(axes, "replicate");
  if (options.strategy == Strategy::NoShard) {
    return {.gather = 1, .reduce = shard * replicas, .replicate = 1};
  }
  return {.gather = shard, .reduce = shard, .replicate = replicas};
}

/// Collectives of one unit; each is grouped over its sections.
struct UnitCollectives {
  CollectiveTotal gather;
  CollectiveTotal scatter;
  CollectiveTotal whole;     ///< all-reduce of what is not cut
  CollectiveTotal replicas;  ///< all-reduce of sharded gradients
};

UnitCollectives collectives_of(const UnitLayout& layout,
                               const ScheduledUnit& unit,
                               const FsdpOptions& options,
                               const GroupSizes& groups) {
  const auto add = [](CollectiveTotal& total, std::int64_t bytes) {
    total.calls = 1;
    total.bytes += bytes;
  };
  const bool kept_whole = unit.begins_with_gradient || !unit.reduces;
  UnitCollectives result;
  for (const Section& section : layout.sections()) {
    const bool sharded =
        groups.gather > 1 && section.placement == Placement::Shard;
    if (sharded) {
      add(result.gather,
          section.padded_numel * element_bytes(section.gathered_dtype));
    }
    if (!section.requires_grad) {
      continue;
    }
    const auto& reduce_dtype = options.precision.reduce_dtype;
    const DType summed =
        reduce_dtype ? to_dtype(*reduce_dtype) : section.stored_dtype;
    const std::int64_t bytes =
        section.padded_numel *
        element_bytes(kept_whole ? summed : section.gathered_dtype);
    if (groups.reduce > 1) {
      add(sharded ? result.scatter : result.whole, bytes);
    }
    if (groups.replicate > 1) {
      add(result.replicas,
          section.numel_per_rank * element_bytes(section.stored_dtype));
    }
  }
  return result;
}

void add(CollectiveTotal& total, const CollectiveTotal& more,
         std::int64_t times = 1) {
  total.add(times * more.calls, times * more.bytes);
}

}  // namespace

void CollectiveTotals::add(const CollectiveTotals& other, std::int64_t times) {
  accordion::add(all_gather, other.all_gather, times);
  accordion::add(reduce_scatter, other.reduce_scatter, times);
  accordion::add(all_reduce, other.all_reduce, times);
}

CollectiveTotals planned_collectives(const LlamaConfig& model,
                                     const FsdpOptions& options,
                                     std::span<const MeshAxis> axes,
                                     Microbatch microbatch) {
  const StepSchedule schedule =
      planned_schedule(model, options, axes, /*shares_memory=*/false,
                       microbatch);  // collectives are the same
  const GroupSizes groups = group_sizes(options, axes);
  std::vector<UnitCollectives> units;
  {
    const MetaInit meta;  // only shapes are looked at
    Unit<Llama> module(model);
    for (const UnitMembers& unit :
         discover_units(*module, placement_rule(options))) {
      units.push_back(
          collectives_of(layout_of(unit, options.precision, groups.gather),
                         schedule.units[units.size()], options, groups));
    }
  }
  CollectiveTotals totals;
  for (const Action& action : schedule.actions) {
    const UnitCollectives& unit = units[static_cast<std::size_t>(action.unit)];
    if (action.kind == ActionKind::Unshard) {
      add(totals.all_gather, unit.gather);
    } else if (action.kind == ActionKind::Reduce) {
      add(totals.reduce_scatter, unit.scatter);
      add(totals.all_reduce, unit.whole);
    } else if (action.kind == ActionKind::AllReduce) {
      add(totals.all_reduce, unit.replicas);
    }
  }
  return totals;
}

CollectiveTotals counted_collectives(const Communicator& communicator) {
  if (communicator.world_size() == 1) {
    return {};
  }
  const CommCounters& counters = communicator.counters();
  const auto of = [&](CommOp op) {
    return CollectiveTotal{.calls = counters.calls_of(op),
                           .bytes = counters.bytes_of(op)};
  };
  return {.all_gather = of(CommOp::AllGather),
          .reduce_scatter = of(CommOp::ReduceScatter),
          .all_reduce = of(CommOp::AllReduce)};
}

}  // namespace accordion
