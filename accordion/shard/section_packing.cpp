// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/shard/section_packing.h"

#include <algorithm>
#include <numeric>

namespace accordion::detail {
namespace {

/// Lengths of a rank's part that are tried; more would find little more.
constexpr std::int64_t kMaxCandidates = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

std::int64_t round_down(std::int64_t value, std::int64_t multiple) {
  return value / multiple * multiple;
}

/// One section and how its parameters may start.
struct Problem {
  std::span<const PackedParameter> parameters;
  std::int64_t start_alignment;  ///< of parameters
  std::int64_t cut_alignment;
  std::int64_t world_size;
  std::int64_t packed_numel;  ///< with parameters end to end, no other gap
};

std::int64_t packed_numel(std::span<const PackedParameter> parameters,
                          std::int64_t start_alignment) {
  std::int64_t end = 0;
  for (const PackedParameter& parameter : parameters) {
    if (parameter.numel > 0) {
      end = round_up(end, start_alignment) + parameter.numel;
    }
  }
  return end;
}

/// The shortest part that holds everything, without gaps for rows.
std::int64_t least_part(const Problem& problem) {
  return round_up(ceil_div(problem.packed_numel, problem.world_size),
                  problem.cut_alignment);
}

/// Elements by which a parameter must move so that the cuts inside it fall on
/// rows; -1 where no move of less than a row does it: two cuts or more that are
/// not a whole number of rows apart.
std::int64_t shift_to_rows(const Problem& problem, std::int64_t offset,
                           const PackedParameter& parameter, std::int64_t n) {
  const std::int64_t first_cut = (offset / n + 1) * n;
  const std::int64_t shift =
      (first_cut - offset) % std::lcm(problem.start_alignment, parameter.row);
  const std::int64_t end = offset + shift + parameter.numel;
  // The shift brings the first cut to a row or to the parameter's own start.
  return n % parameter.row == 0 || end <= first_cut + n ? shift : -1;
}

/// Lays the parameters out for parts of n elements, in order, with gaps where
/// a gap brings a cut to a row and there is room for it.
SectionPacking pack_for(const Problem& problem, std::int64_t n) {
  SectionPacking packing;
  packing.numel_per_rank = n;
  packing.offsets.reserve(problem.parameters.size());
  std::int64_t room = problem.world_size * n - problem.packed_numel;
  std::int64_t end = 0;
  for (const PackedParameter& parameter : problem.parameters) {
    if (parameter.numel == 0) {
      packing.offsets.push_back(end);
      continue;
    }
    std::int64_t offset = round_up(end, problem.start_alignment);
    const std::int64_t num_cuts =
        (offset + parameter.numel - 1) / n - offset / n;
    if (num_cuts > 0 && parameter.row > 1) {
      const std::int64_t shift = shift_to_rows(problem, offset, parameter, n);
      if (shift >= 0 && shift <= room) {
        offset += shift;
        room -= shift;
      } else {
        packing.cuts_off_rows += num_cuts;
      }
    }
    packing.offsets.push_back(offset);
    end = offset + parameter.numel;
  }
  return packing;
}

/// The largest step such that parts of a multiple of it put many cuts on rows:
/// the rows of the parameters with most cuts first, as far as a multiple lies
/// within [least, most].
std::int64_t row_step(const Problem& problem, std::int64_t least,
                      std::int64_t most) {
  std::vector<PackedParameter> cut;
  for (const PackedParameter& parameter : problem.parameters) {
    if (parameter.numel > least && parameter.row > 1) {
      const auto same_row = [&](const PackedParameter& other) {
        return other.row == parameter.row;
      };
      const auto found = std::find_if(cut.begin(), cut.end(), same_row);
      if (found == cut.end()) {
        cut.push_back(parameter);
      } else {
        found->numel += parameter.numel;
      }
    }
  }
  std::stable_sort(cut.begin(), cut.end(), [](const auto& a, const auto& b) {
    return a.numel > b.numel;
  });
  std::int64_t step = problem.cut_alignment;
  for (const PackedParameter& parameter : cut) {
    const std::int64_t factor = parameter.row / std::gcd(step, parameter.row);
    if (factor <= most / step && round_up(least, step * factor) <= most) {
      step *= factor;
    }
  }
  return step;
}

/// The best packing with parts of `least` to `most` elements: fewest cuts off
/// rows, then least padding.
SectionPacking search(const Problem& problem, std::int64_t least,
                      std::int64_t most) {
  SectionPacking best = pack_for(problem, least);
  const std::int64_t steps[] = {row_step(problem, least, most),
                                problem.cut_alignment};
  for (const std::int64_t step : steps) {
    const std::int64_t first = round_up(least, step);
    const std::int64_t count = first > most ? 0 : (most - first) / step + 1;
    const std::int64_t stride =
        ceil_div(std::max<std::int64_t>(count, 1), kMaxCandidates);
    for (std::int64_t i = 0; i < count && best.cuts_off_rows > 0; i += stride) {
      SectionPacking packing = pack_for(problem, first + i * step);
      if (packing.cuts_off_rows < best.cuts_off_rows) {
        best = std::move(packing);
      }
    }
  }
  return best;
}

}  // namespace

SectionPacking pack_section(std::span<const PackedParameter> parameters,
                            std::int64_t alignment, int world_size) {
  const std::int64_t numel = packed_numel(parameters, 1);
  if (numel == 0) {
    return {.offsets = std::vector<std::int64_t>(parameters.size(), 0)};
  }
  // Where one rank owns all, nothing is cut and nothing follows the last
  // parameter.
  Problem problem{parameters, alignment, world_size == 1 ? 1 : alignment,
                  world_size, packed_numel(parameters, alignment)};
  // The bound of [Note: padding], in elements.
  const std::int64_t most_padded = numel + numel / 100 + world_size * alignment;
  const std::int64_t most =
      round_down(most_padded / world_size, problem.cut_alignment);
  if (least_part(problem) > most) {
    problem.start_alignment = 1;
    problem.packed_numel = numel;
  }
  return search(problem, least_part(problem), most);
}

}  // namespace accordion::detail
