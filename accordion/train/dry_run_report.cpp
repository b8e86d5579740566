// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "accordion/train/dry_run.h"

namespace accordion {
namespace {

struct Collective {
  std::string_view name;
  CollectiveTotal CollectiveTotals::*total;
};
constexpr std::array<Collective, 3> kCollectives = {{
    {"all-gather", &CollectiveTotals::all_gather},
    {"reduce-scatter", &CollectiveTotals::reduce_scatter},
    {"all-reduce", &CollectiveTotals::all_reduce},
}};

/// What a plan can know to the byte: all but what operators allocate.
bool is_state(const MemoryKind& kind) {
  return kind.bytes != &MemoryByKind::activations &&
         kind.bytes != &MemoryByKind::other;
}

/// Of the plan; 0 where both are.
double relative_difference(std::int64_t executed, std::int64_t planned) {
  if (executed == planned) {
    return 0.0;
  }
  return planned == 0 ? 1.0
                      : static_cast<double>(executed - planned) /
                            static_cast<double>(planned);
}

std::string_view name_of(Microbatch microbatch) {
  switch (microbatch) {
    case Microbatch::First:
      return "first microbatch";
    case Microbatch::Middle:
      return "microbatch in between";
    case Microbatch::Last:
      return "last microbatch";
    case Microbatch::Only:
      break;
  }
  return "step";
}

template <class Side>
CollectiveTotals sum_of(const DryRun& run, const Side& side) {
  CollectiveTotals sum;
  for (const DryPass& pass : run.passes) {
    sum.add(pass.*side, pass.times);
  }
  return sum;
}

}  // namespace

CollectiveTotals DryRun::executed_step() const {
  return sum_of(*this, &DryPass::executed);
}

CollectiveTotals DryRun::planned_step() const {
  return sum_of(*this, &DryPass::planned);
}

std::vector<std::string> differences(const DryRun& run) {
  std::vector<std::string> found;
  for (const DryPass& pass : run.passes) {
    for (const Collective& collective : kCollectives) {
      const CollectiveTotal& executed = pass.executed.*collective.total;
      const CollectiveTotal& planned = pass.planned.*collective.total;
      if (executed != planned) {
        found.push_back(fmt::format(
            "{}s of the {}: executed {} of {} bytes, planned {} of {} bytes",
            collective.name, name_of(pass.microbatch), executed.calls,
            executed.bytes, planned.calls, planned.bytes));
      }
    }
    if (!pass.same_schedule) {
      found.push_back(
          fmt::format("the {} followed another schedule than the one planned",
                      name_of(pass.microbatch)));
    }
  }
  for (const MemoryKind& kind : kMemoryKinds) {
    const std::int64_t executed = run.executed.*kind.bytes;
    const std::int64_t planned = run.planned.*kind.bytes;
    if (is_state(kind) &&
        std::abs(relative_difference(executed, planned)) > kDryRunTolerance) {
      found.push_back(fmt::format("{}: executed {}, planned {}", kind.name,
                                  describe_bytes(executed),
                                  describe_bytes(planned)));
    }
  }
  return found;
}

std::string to_table(const DryRun& run) {
  std::string text = fmt::format(
      "rank {} of {}, {} parameters, executed on meta in {:.1f} s\n\n"
      "{:<24}{:>16}{:>16}{:>12}\n",
      run.rank, run.world_size, run.parameters, run.seconds,
      "collectives of a step", "executed", "planned", "difference");
  const CollectiveTotals executed = run.executed_step();
  const CollectiveTotals planned = run.planned_step();
  for (const Collective& collective : kCollectives) {
    const CollectiveTotal& did = executed.*collective.total;
    const CollectiveTotal& said = planned.*collective.total;
    text += fmt::format("{:<24}{:>16}{:>16}{:>12}\n", collective.name,
                        did.calls, said.calls, did.calls - said.calls);
    text += fmt::format("{:<24}{:>16}{:>16}{:>12}\n", "  bytes", did.bytes,
                        said.bytes, did.bytes - said.bytes);
  }
  text += fmt::format("\n{:<24}{:>16}{:>16}{:>12}\n", "memory at most",
                      "executed", "planned", "difference");
  for (const MemoryKind& kind : kMemoryKinds) {
    const std::int64_t did = run.executed.*kind.bytes;
    const std::int64_t said = run.planned.*kind.bytes;
    if (kind.bytes == &MemoryByKind::other) {
      continue;  // batches and tables; the plan has no line for them
    }
    text += fmt::format("{:<24}{:>16}{:>16}{:>11.2f}%\n", kind.name,
                        describe_bytes(did), describe_bytes(said),
                        100.0 * relative_difference(did, said));
  }
  return text;
}

}  // namespace accordion
