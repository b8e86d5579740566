// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace accordion::detail {

/// What packing must know of a parameter: its elements, and those of one row
/// (numel divided by dim 0; 1 for a scalar or a vector).
struct PackedParameter {
  std::int64_t numel = 0;
  std::int64_t row = 1;
};

/// Where the parameters of one section lie, and how long a rank's part is.
///
/// Units  elements
struct SectionPacking {
  std::vector<std::int64_t> offsets;
  std::int64_t numel_per_rank = 0;
  /// Cuts inside a parameter that are no row boundaries.
  std::int64_t cuts_off_rows = 0;
};

/// Packs parameters into a flat buffer that is cut in `world_size` equal parts,
/// as [Note: padding] of unit_layout.h promises. `alignment` is the number of
/// elements in 64 bytes; every cut is a multiple of it, and so is every offset
/// unless that would break the bound.
///
/// Every rank calls it with the same arguments and gets the same answer. Its
/// cost grows with the number of parameters, not with world_size.
SectionPacking pack_section(std::span<const PackedParameter> parameters,
                            std::int64_t alignment, int world_size);

}  // namespace accordion::detail
