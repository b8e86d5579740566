// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <type_traits>

#include "accordion/comm/element_kernels.h"

namespace accordion::detail {
namespace {

// Elements summed at a time: so few that the processor loads sources of the
// next block while it still works on this one.
constexpr std::int64_t kBlock = 512;

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Bfloat16 ||
         dtype == DType::Float16 || dtype == DType::Float64;
}

const std::uint16_t* halves(const void* data) {
  return static_cast<const std::uint16_t*>(data);
}

// Leaves in `values` what the dtype can represent of them.
void round_to(float* values, DType dtype, std::int64_t numel) {
  if (dtype != DType::Bfloat16 && dtype != DType::Float16) {
    return;
  }
  std::array<std::uint16_t, kBlock> rounded;
  convert(rounded.data(), dtype, values, DType::Float32, numel);
  convert(values, DType::Float32, rounded.data(), dtype, numel);
}

void add_floats(float* sum, const void* from, DType dtype, std::int64_t numel) {
  if (dtype == DType::Float32) {
    return add_fp32(sum, static_cast<const float*>(from), numel);
  }
  if (dtype == DType::Bfloat16) {
    return add_bf16(sum, halves(from), numel);
  }
  alignas(64) std::array<float, kBlock> converted;
  convert(converted.data(), DType::Float32, from, dtype, numel);
  add_fp32(sum, converted.data(), numel);
}

void store_floats(float* values, const ReduceTarget& target, std::int64_t first,
                  std::int64_t numel) {
  // Else storing rounds all the same.
  if (target.accumulate || target.local_dtype != target.reduce_dtype) {
    round_to(values, target.reduce_dtype, numel);
  }
  std::byte* local = offset(target.local, target.local_dtype, first);
  if (target.accumulate) {
    add_floats(values, local, target.local_dtype, numel);
  }
  convert(local, target.local_dtype, values, DType::Float32, numel);
}

// Of a block that was just stored, so that it is read from the cache.
void add_squares(const ReduceTarget& target, std::int64_t first,
                 std::int64_t numel) {
  if (target.squares != nullptr) {
    target.squares->add(offset(target.local, target.local_dtype, first),
                        target.local_dtype, numel);
  }
}

// Sums of elements [first, first + numel) of the sources, in fp32.
void sum_floats(float* sum, std::span<const void* const> sources, DType dtype,
                std::int64_t first, std::int64_t numel) {
  convert(sum, DType::Float32, offset(sources[0], dtype, first), dtype, numel);
  for (const void* source : sources.subspan(1)) {
    add_floats(sum, offset(source, dtype, first), dtype, numel);
  }
}

// By blocks, which stay in the cache until they are stored.
void reduce_blocks(std::span<const void* const> sources, DType dtype,
                   const ReduceTarget& target, std::int64_t numel) {
  alignas(64) std::array<float, kBlock> block;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    sum_floats(block.data(), sources, dtype, first, count);
    scale_fp32(block.data(), static_cast<float>(target.scale), count);
    store_floats(block.data(), target, first, count);
    add_squares(target, first, count);
  }
}

// The last two operands of a sum, and all that follows it, in one loop.
template <typename A, typename B>
void finish_sum(const A* a, const B* b, const ReduceTarget& target,
                std::int64_t first, std::int64_t numel) {
  const auto scale = static_cast<float>(target.scale);
  if constexpr (std::is_same_v<B, std::uint16_t>) {
    if (target.local_dtype == DType::Bfloat16) {
      return sum_pair(static_cast<std::uint16_t*>(target.local) + first, a, b,
                      scale, numel);
    }
  }
  const Store store = target.accumulate   ? Store::Add
                      : target.past_cache ? Store::PastCache
                                          : Store::Plain;
  sum_pair(static_cast<float*>(target.local) + first, a, b, scale, store,
           target.squares == nullptr ? nullptr : target.squares->lanes(),
           numel);
}

// Whether finish_sum() can do what is asked.
bool one_loop(std::size_t num_sources, DType wire, const ReduceTarget& target) {
  const bool floats = (wire == DType::Float32 || wire == DType::Bfloat16) &&
                      target.local_dtype == DType::Float32 &&
                      (target.reduce_dtype == DType::Float32 ||
                       target.reduce_dtype == DType::Float64);
  const bool halves = wire == DType::Bfloat16 &&
                      target.local_dtype == DType::Bfloat16 &&
                      target.reduce_dtype != DType::Float16 &&
                      !target.accumulate && target.squares == nullptr;
  return num_sources >= 2 && (floats || halves);
}

// `Wire` is float or the bits of a bf16.
template <typename Wire>
void reduce_in_one_loop(std::span<const void* const> sources, DType dtype,
                        const ReduceTarget& target, std::int64_t numel) {
  const auto* last = static_cast<const Wire*>(sources.back());
  if (sources.size() == 2) {
    return finish_sum(static_cast<const Wire*>(sources[0]), last, target, 0,
                      numel);
  }
  alignas(64) std::array<float, kBlock> block;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    sum_floats(block.data(), sources.first(sources.size() - 1), dtype, first,
               count);
    finish_sum(block.data(), last + first, target, first, count);
  }
}

void reduce_floats(std::span<const void* const> sources, DType dtype,
                   const ReduceTarget& target, std::int64_t numel) {
  if (!one_loop(sources.size(), dtype, target)) {
    reduce_blocks(sources, dtype, target, numel);
  } else if (dtype == DType::Float32) {
    reduce_in_one_loop<float>(sources, dtype, target, numel);
  } else {
    reduce_in_one_loop<std::uint16_t>(sources, dtype, target, numel);
  }
}

void store_doubles(double* values, const ReduceTarget& target,
                   std::int64_t first, std::int64_t numel) {
  alignas(64) std::array<double, kBlock> other;
  convert(other.data(), target.reduce_dtype, values, DType::Float64, numel);
  convert(values, DType::Float64, other.data(), target.reduce_dtype, numel);
  std::byte* local = offset(target.local, target.local_dtype, first);
  if (target.accumulate) {
    convert(other.data(), DType::Float64, local, target.local_dtype, numel);
    add_fp64(values, other.data(), numel);
  }
  convert(local, target.local_dtype, values, DType::Float64, numel);
}

void reduce_doubles(std::span<const void* const> sources,
                    const ReduceTarget& target, std::int64_t numel) {
  alignas(64) std::array<double, kBlock> block;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    std::copy_n(static_cast<const double*>(sources[0]) + first, count,
                block.data());
    for (const void* source : sources.subspan(1)) {
      add_fp64(block.data(), static_cast<const double*>(source) + first, count);
    }
    scale_fp64(block.data(), target.scale, count);
    store_doubles(block.data(), target, first, count);
    add_squares(target, first, count);
  }
}

template <typename Integer>
void reduce_integers(std::span<const void* const> sources,
                     const ReduceTarget& target, std::int64_t numel) {
  auto* local = static_cast<Integer*>(target.local);
  for (std::int64_t i = 0; i < numel; ++i) {
    std::int64_t sum = target.accumulate ? local[i] : 0;
    for (const void* source : sources) {
      sum += static_cast<const Integer*>(source)[i];
    }
    local[i] = static_cast<Integer>(sum);
  }
}

}  // namespace

void check_part(const GatherPart& part, std::string_view where) {
  if (part.numel < 0) {
    throw std::invalid_argument(
        fmt::format("[{}] a part has {} elements", where, part.numel));
  }
  if (part.local_dtype != part.full_dtype &&
      !(is_floating(part.local_dtype) && is_floating(part.full_dtype))) {
    throw std::invalid_argument(fmt::format(
        "[{}] cannot convert {} to {}: give local and full the same dtype, or "
        "floating point dtypes",
        where, name(part.local_dtype), name(part.full_dtype)));
  }
}

void check_part(const ReducePart& part, std::string_view where) {
  if (part.numel < 0) {
    throw std::invalid_argument(
        fmt::format("[{}] a part has {} elements", where, part.numel));
  }
  const bool floating = is_floating(part.full_dtype) &&
                        is_floating(part.local_dtype) &&
                        is_floating(part.reduce_dtype);
  const bool integers =
      (part.full_dtype == DType::Int64 || part.full_dtype == DType::Int32) &&
      part.local_dtype == part.full_dtype &&
      part.reduce_dtype == part.full_dtype && part.scale == 1.0;
  if (!floating && !integers) {
    throw std::invalid_argument(fmt::format(
        "[{}] cannot reduce {} by {} in {} to {}: use floating point dtypes, "
        "or int64 or int32 throughout with scale 1",
        where, name(part.full_dtype), part.scale, name(part.reduce_dtype),
        name(part.local_dtype)));
  }
  if (integers && part.sum_of_squares != nullptr) {
    throw std::invalid_argument(fmt::format(
        "[{}] no sum of squares of {}: leave sum_of_squares null, or use "
        "floating point dtypes",
        where, name(part.local_dtype)));
  }
}

void reduce(std::span<const void* const> sources, DType source_dtype,
            const ReduceTarget& target, std::int64_t numel) {
  switch (source_dtype) {
    case DType::Float64:
      return reduce_doubles(sources, target, numel);
    case DType::Int64:
      return reduce_integers<std::int64_t>(sources, target, numel);
    case DType::Int32:
      return reduce_integers<std::int32_t>(sources, target, numel);
    default:
      return reduce_floats(sources, source_dtype, target, numel);
  }
}

ElementRange all_reduce_range(std::int64_t numel, int rank, int world_size) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t piece =
      ((numel + world_size - 1) / world_size + kLine - 1) / kLine * kLine;
  const std::int64_t first = std::min(numel, rank * piece);
  return {first, std::min(piece, numel - first)};
}

std::int64_t full_bytes(std::span<const GatherPart> parts, int world_size) {
  std::int64_t bytes = 0;
  for (const GatherPart& part : parts) {
    bytes += part.numel * world_size * element_bytes(part.full_dtype);
  }
  return bytes;
}

std::int64_t full_bytes(std::span<const ReducePart> parts,
                        int pieces_per_part) {
  std::int64_t bytes = 0;
  for (const ReducePart& part : parts) {
    bytes += part.numel * pieces_per_part * element_bytes(part.full_dtype);
  }
  return bytes;
}

}  // namespace accordion::detail
