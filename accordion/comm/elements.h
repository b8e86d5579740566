// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "accordion/comm/communicator.h"
#include "accordion/comm/dtype.h"
#include "accordion/comm/square_sum.h"

// What collectives do to elements: convert them on the way, and sum them. Every
// backend computes through these functions, so that results do not depend on
// the transport.
namespace accordion::detail {

/// Throws std::invalid_argument, prefixed with `where`, unless convert() knows
/// the part's pair of dtypes.
void check_part(const GatherPart& part, std::string_view where);

/// The same for reduce(): floating point in any combination, or int64 and
/// int32 unscaled, unconverted and without a sum of squares.
void check_part(const ReducePart& part, std::string_view where);

/// Copies `numel` elements, rounding to nearest even where `to` is narrower; a
/// NaN stays a NaN. The ranges may be the same memory but not overlap in part.
void convert(void* to, DType to_dtype, const void* from, DType from_dtype,
             std::int64_t numel);

/// The same with results that the caches do not keep where that is possible:
/// their lines need not be read before they are written, a third of the
/// traffic.
void convert_past_cache(void* to, DType to_dtype, const void* from,
                        DType from_dtype, std::int64_t numel);

/// Where and how reduce() leaves its sum; fields as in ReducePart.
struct ReduceTarget {
  void* local;  ///< [numel] of local_dtype
  DType local_dtype;
  DType reduce_dtype;
  double scale;
  bool accumulate;
  SquareSum* squares = nullptr;  ///< takes what `local` then holds; or null
  bool past_cache = false;       ///< see convert_past_cache
};

/// Sums `numel` elements of each source in the order of `sources`, in fp32
/// (fp64 for fp64, int64 for integers), scales, rounds and stores.
///
/// Each source is read once.
/// `target.local` may be the memory of one of the sources when the dtypes have
/// the same size.
void reduce(std::span<const void* const> sources, DType source_dtype,
            const ReduceTarget& target, std::int64_t numel);

/// `pointer` moved by a number of elements.
[[nodiscard]] inline std::byte* offset(void* pointer, DType dtype,
                                       std::int64_t numel) {
  return static_cast<std::byte*>(pointer) + numel * element_bytes(dtype);
}
[[nodiscard]] inline const std::byte* offset(const void* pointer, DType dtype,
                                             std::int64_t numel) {
  return static_cast<const std::byte*>(pointer) + numel * element_bytes(dtype);
}

/// Elements [first, first + count) of a part.
struct ElementRange {
  std::int64_t first;
  std::int64_t count;
};

/// The range that `rank` sums in an all-reduce of `numel` elements: whole cache
/// lines of any dtype, so that no two ranks write to one; empty for the last
/// ranks of a small part.
[[nodiscard]] ElementRange all_reduce_range(std::int64_t numel, int rank,
                                            int world_size);

/// What CommCounters counts for one call: full bytes over all parts.
[[nodiscard]] std::int64_t full_bytes(std::span<const GatherPart> parts,
                                      int world_size);
[[nodiscard]] std::int64_t full_bytes(std::span<const ReducePart> parts,
                                      int pieces_per_part);

}  // namespace accordion::detail
