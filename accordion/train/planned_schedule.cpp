// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/planned_schedule.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "accordion/fsdp/scalar_type.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/models/llama.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {
namespace {

/// The sections of a unit over `num_cuts` ranks.
UnitLayout layout_of(const UnitMembers& unit, const FsdpOptions& options,
                     int num_cuts) {
  std::vector<ParameterSpec> specs;
  for (const MemberParameter& parameter : unit.parameters) {
    const c10::ScalarType stored = parameter.tensor.scalar_type();
    specs.push_back({.name = parameter.name,
                     .shape = parameter.tensor.sizes().vec(),
                     .stored_dtype = to_dtype(stored),
                     .gathered_dtype = to_dtype(
                         options.precision.param_dtype.value_or(stored)),
                     .requires_grad = parameter.tensor.requires_grad(),
                     .placement = parameter.placement});
  }
  return UnitLayout::make(std::move(specs), num_cuts);
}

ScheduledUnit scheduled(const UnitMembers& unit, const FsdpOptions& options,
                        int world_size) {
  const bool sharded = options.strategy != Strategy::NoShard && world_size > 1;
  ScheduledUnit result{
      .name = unit.name,
      .kept = !reshards_after_forward(options, unit.parent == -1)};
  const UnitLayout layout = layout_of(
      unit, options, options.strategy == Strategy::NoShard ? 1 : world_size);
  for (const Section& section : layout.sections()) {
    const std::int64_t bytes =
        (section.padded_numel * element_bytes(section.gathered_dtype) + 63) /
        64 * 64;
    const bool cast = section.stored_dtype != section.gathered_dtype;
    if (sharded ? section.placement == Placement::Shard : cast) {
      result.unsharded_bytes += bytes;
    }
    if (section.requires_grad) {
      result.gradient_bytes += bytes;
    }
  }
  return result;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

StepSchedule planned_schedule(const LlamaConfig& model,
                              const FsdpOptions& options, int world_size) {
  // Uninitialised memory: only its shapes are looked at.
  Unit<Llama> module(model);
  std::vector<ScheduledUnit> units;
  for (const UnitMembers& unit :
       discover_units(*module, placement_rule(options))) {
    units.push_back(scheduled(unit, options, world_size));
  }
  const auto markers = forward_backward_markers(units);
  return make_schedule(
      std::move(units), markers,
      {.depth = options.prefetch, .max_bytes = options.prefetch_bytes});
}

std::string schedule_totals(const StepSchedule& schedule) {
  std::int64_t gathers = 0;
  std::int64_t gathered_bytes = 0;
  std::int64_t reductions = 0;
  std::int64_t reduced_bytes = 0;
  for (const Action& action : schedule.actions) {
    const auto& unit = schedule.units[static_cast<std::size_t>(action.unit)];
    if (action.kind == ActionKind::Unshard) {
      ++gathers;
      gathered_bytes += unit.unsharded_bytes;
    } else if (action.kind == ActionKind::Reduce) {
      ++reductions;
      reduced_bytes += unit.gradient_bytes;
    }
  }
  return fmt::format(
      "{} units; a step unshards {} times ({}) and reduces {} times ({}); at "
      "most {} of parameters are unsharded at a time",
      schedule.units.size(), gathers, mib(gathered_bytes), reductions,
      mib(reduced_bytes), mib(peak_unsharded_bytes(schedule)));
}

}  // namespace accordion
