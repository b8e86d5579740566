// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/planned_schedule.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "accordion/fsdp/scalar_type.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/models/llama.h"
#include "accordion/module/meta_init.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// How a unit meets the passes of a step; the executor derives the same from
/// what it finds.
struct PassPlan {
  int shard_ranks = 1;  ///< that hold pieces of one copy
  int replicas = 1;     ///< copies over which sharded gradients are averaged
  bool shares_memory = false;
  bool begins_unsharded = false;
  bool ends_unsharded = false;
  bool begins_with_gradient = false;
  bool reduces = true;
  bool all_reduces = true;
};

PassPlan plan_pass(const FsdpOptions& options, std::span<const MeshAxis> axes,
                   bool shares_memory, Microbatch microbatch) {
  const bool whole = options.strategy == Strategy::NoShard;
  const bool first =
      microbatch == Microbatch::Only || microbatch == Microbatch::First;
  const bool last =
      microbatch == Microbatch::Only || microbatch == Microbatch::Last;
  const bool keeps = keeps_parameters(options);
  const Accumulation accumulation = accumulation_of(options);
  const bool unsharded = accumulation == Accumulation::Unsharded;
  return {
      .shard_ranks = whole ? 1 : axis_size(axes, "shard"),
      .replicas = whole ? 1 : axis_size(axes, "replicate"),
      .shares_memory = shares_memory,
      .begins_unsharded = keeps && !first,
      .ends_unsharded = keeps && !last,
      .begins_with_gradient = unsharded && !first,
      .reduces = last || !unsharded,
      .all_reduces = last || accumulation != Accumulation::DeferredAllReduce,
  };
}

/// Adds what a section needs of slots to its unit.
void add_section(ScheduledUnit& unit, const Section& section,
                 const FsdpOptions& options, const PassPlan& pass) {
  const bool lone = pass.shard_ranks == 1;
  const bool sharded = !lone && section.placement == Placement::Shard;
  const bool cast = section.stored_dtype != section.gathered_dtype;
  const auto bytes = [&](DType dtype) {
    return aligned(section.padded_numel * element_bytes(dtype));
  };
  const bool cut = sharded || lone;  // what FsdpOptions::offload is about
  const bool offloads_parameters =
      options.offload && options.offload->parameters;
  if (sharded || (lone && (cast || offloads_parameters))) {
    unit.unsharded_bytes += bytes(section.gathered_dtype);
  } else if (cast) {
    // Whole, with a copy of its own to compute with: no bytes, but a slot.
    unit.unsharded_bytes = std::max(unit.unsharded_bytes, kAlignment);
  }
  if (!section.requires_grad) {
    return;
  }
  const bool kept_whole = unit.begins_with_gradient || !unit.reduces;
  const auto& reduce_dtype = options.precision.reduce_dtype;
  const DType summed =
      reduce_dtype ? to_dtype(*reduce_dtype) : section.stored_dtype;
  unit.gradient_bytes += bytes(kept_whole ? summed : section.gathered_dtype);
  if (pass.replicas > 1 && pass.all_reduces) {
    unit.all_reduce_bytes +=
        section.numel_per_rank * element_bytes(section.stored_dtype);
  }
  // To the host of a device they are reduced, and pass through no slot.
  const bool offloads = cut && unit.reduces && options.offload &&
                        options.offload->gradients &&
                        options.offload->to.host == nullptr;
  unit.offloads_gradient |= offloads;
  if (offloads || (options.step_in_backward && unit.reduces)) {
    unit.gradient_shard_bytes +=
        aligned(section.numel_per_rank * element_bytes(section.stored_dtype));
  }
}

ScheduledUnit scheduled(const UnitMembers& unit, const FsdpOptions& options,
                        const PassPlan& pass) {
  ScheduledUnit result{
      .name = unit.name,
      .kept = !reshards_after_forward(options, unit.parent == -1) ||
              pass.ends_unsharded,
      .begins_with_gradient = pass.begins_with_gradient,
      .reduces = pass.reduces,
  };
  const UnitLayout layout =
      layout_of(unit, options.precision, pass.shard_ranks);
  for (const Section& section : layout.sections()) {
    add_section(result, section, options, pass);
  }
  result.in_place = pass.shares_memory && gathers_in_place(layout, options);
  const bool gathers = result.unsharded_bytes > 0;
  result.begins_unsharded = gathers && pass.begins_unsharded;
  result.ends_unsharded = gathers && pass.ends_unsharded;
  return result;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

int axis_size(std::span<const MeshAxis> axes, std::string_view name) {
  for (const MeshAxis& axis : axes) {
    if (axis.name == name) {
      return axis.size;
    }
  }
  return 1;
}

StepSchedule planned_schedule(const LlamaConfig& model,
                              const FsdpOptions& options,
                              std::span<const MeshAxis> axes,
                              bool shares_memory, Microbatch microbatch) {
  const MetaInit meta;  // only shapes are looked at
  Unit<Llama> module(model);
  const PassPlan pass = plan_pass(options, axes, shares_memory, microbatch);
  std::vector<ScheduledUnit> units;
  for (const UnitMembers& unit :
       discover_units(*module, placement_rule(options))) {
    units.push_back(scheduled(unit, options, pass));
  }
  const auto markers = forward_backward_markers(units);
  return make_schedule(
      std::move(units), markers,
      {.depth = options.prefetch, .max_bytes = options.prefetch_bytes});
}

std::string schedule_totals(const StepSchedule& schedule) {
  struct Total {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
    void add(std::int64_t more) {
      ++calls;
      bytes += more;
    }
  } gathers, reductions, all_reductions;
  for (const Action& action : schedule.actions) {
    const auto& unit = schedule.units[static_cast<std::size_t>(action.unit)];
    if (action.kind == ActionKind::Unshard) {
      gathers.add(unit.unsharded_bytes);
    } else if (action.kind == ActionKind::Reduce) {
      reductions.add(unit.gradient_bytes);
    } else if (action.kind == ActionKind::AllReduce) {
      all_reductions.add(unit.all_reduce_bytes);
    }
  }
  const std::string over_replicas =
      all_reductions.calls == 0
          ? ""
          : fmt::format(", all-reduces {} times over replicas ({})",
                        all_reductions.calls, mib(all_reductions.bytes));
  const std::int64_t peak = peak_unsharded_bytes(schedule);
  const bool in_place =
      peak == 0 &&
      std::ranges::any_of(schedule.units, &ScheduledUnit::in_place);
  return fmt::format(
      "{} units; a pass unshards {} times ({}), reduces {} times ({}){}; {}",
      schedule.units.size(), gathers.calls, mib(gathers.bytes),
      reductions.calls, mib(reductions.bytes), over_replicas,
      in_place ? "unsharded parameters are the ranks' shards, in place"
               : fmt::format("at most {} of parameters are unsharded at a time",
                             mib(peak)));
}

}  // namespace accordion
