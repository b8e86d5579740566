// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "accordion/comm/element_kernels.h"

namespace accordion::detail {
namespace {

// Elements summed at a time: 8 KiB of fp32, a quarter of a small first-level
// cache, which leaves room for the sources that stream past.
constexpr std::int64_t kBlock = 2048;

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Bfloat16 ||
         dtype == DType::Float16 || dtype == DType::Float64;
}

const std::uint16_t* halves(const void* data) {
  return static_cast<const std::uint16_t*>(data);
}

void to_floats(float* to, const void* from, DType dtype, std::int64_t numel) {
  switch (dtype) {
    case DType::Float32:
      std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
      return;
    case DType::Bfloat16:
      return bf16_to_fp32(to, halves(from), numel);
    case DType::Float16:
      return fp16_to_fp32(to, halves(from), numel);
    case DType::Float64:
      std::copy_n(static_cast<const double*>(from), numel, to);
      return;
    default:
      throw std::logic_error("[comm] not a floating point dtype");
  }
}

void from_floats(void* to, DType dtype, const float* from, std::int64_t numel) {
  switch (dtype) {
    case DType::Float32:
      std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(float));
      return;
    case DType::Bfloat16:
      return fp32_to_bf16(static_cast<std::uint16_t*>(to), from, numel);
    case DType::Float16:
      return fp32_to_fp16(static_cast<std::uint16_t*>(to), from, numel);
    case DType::Float64:
      std::copy_n(from, numel, static_cast<double*>(to));
      return;
    default:
      throw std::logic_error("[comm] not a floating point dtype");
  }
}

// Leaves in `values` what the dtype can represent of them.
void round_to(float* values, DType dtype, std::int64_t numel) {
  if (dtype != DType::Bfloat16 && dtype != DType::Float16) {
    return;
  }
  std::array<std::uint16_t, kBlock> rounded;
  from_floats(rounded.data(), dtype, values, numel);
  to_floats(values, rounded.data(), dtype, numel);
}

void add_floats(float* sum, const void* from, DType dtype, std::int64_t numel) {
  if (dtype == DType::Float32) {
    return add_fp32(sum, static_cast<const float*>(from), numel);
  }
  if (dtype == DType::Bfloat16) {
    return add_bf16(sum, halves(from), numel);
  }
  alignas(64) std::array<float, kBlock> converted;
  to_floats(converted.data(), from, dtype, numel);
  add_fp32(sum, converted.data(), numel);
}

void store_floats(float* values, const ReduceTarget& target, std::int64_t first,
                  std::int64_t numel) {
  round_to(values, target.reduce_dtype, numel);
  std::byte* local = offset(target.local, target.local_dtype, first);
  if (target.accumulate) {
    add_floats(values, local, target.local_dtype, numel);
  }
  from_floats(local, target.local_dtype, values, numel);
}

// Of a block that was just stored, so that it is read from the cache.
void add_squares(const ReduceTarget& target, std::int64_t first,
                 std::int64_t numel) {
  if (target.squares != nullptr) {
    target.squares->add(offset(target.local, target.local_dtype, first),
                        target.local_dtype, numel);
  }
}

// Sources [0, 1] of a block; `scale` only when there are no more.
void add_first_two(float* sum, const void* a, const void* b, DType dtype,
                   float scale, std::int64_t numel) {
  if (dtype == DType::Float32) {
    add_pair_fp32(sum, static_cast<const float*>(a),
                  static_cast<const float*>(b), scale, numel);
  } else if (dtype == DType::Bfloat16) {
    add_pair_bf16(sum, halves(a), halves(b), scale, numel);
  } else {
    to_floats(sum, a, dtype, numel);
    add_floats(sum, b, dtype, numel);
    scale_fp32(sum, scale, numel);
  }
}

void sum_floats(float* sum, std::span<const void* const> sources, DType dtype,
                float scale, std::int64_t first, std::int64_t numel) {
  const auto at = [&](std::size_t rank) {
    return offset(sources[rank], dtype, first);
  };
  if (sources.size() == 1) {
    to_floats(sum, at(0), dtype, numel);
    return scale_fp32(sum, scale, numel);
  }
  if (sources.size() == 2) {
    return add_first_two(sum, at(0), at(1), dtype, scale, numel);
  }
  add_first_two(sum, at(0), at(1), dtype, 1.0f, numel);
  for (std::size_t rank = 2; rank < sources.size(); ++rank) {
    add_floats(sum, at(rank), dtype, numel);
  }
  scale_fp32(sum, scale, numel);
}

void reduce_floats(std::span<const void* const> sources, DType dtype,
                   const ReduceTarget& target, std::int64_t numel) {
  alignas(64) std::array<float, kBlock> block;
  const bool direct = target.local_dtype == DType::Float32 &&
                      target.reduce_dtype != DType::Bfloat16 &&
                      target.reduce_dtype != DType::Float16 &&
                      !target.accumulate && sources.size() <= 2;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    // With one or two sources nothing is left to do after the sum: it goes
    // where it belongs without passing through the block.
    float* sum =
        direct ? static_cast<float*>(target.local) + first : block.data();
    sum_floats(sum, sources, dtype, static_cast<float>(target.scale), first,
               count);
    if (!direct) {
      store_floats(block.data(), target, first, count);
    }
    add_squares(target, first, count);
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

void convert(void* to, DType to_dtype, const void* from, DType from_dtype,
             std::int64_t numel) {
  if (numel <= 0 || (to == from && to_dtype == from_dtype)) {
    return;
  }
  if (to_dtype == from_dtype) {
    std::memcpy(to, from,
                static_cast<std::size_t>(numel * element_bytes(to_dtype)));
    return;
  }
  if (from_dtype == DType::Float32) {
    return from_floats(to, to_dtype, static_cast<const float*>(from), numel);
  }
  if (to_dtype == DType::Float32) {
    return to_floats(static_cast<float*>(to), from, from_dtype, numel);
  }
  alignas(64) std::array<float, kBlock> block;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    to_floats(block.data(), offset(from, from_dtype, first), from_dtype, count);
    from_floats(offset(to, to_dtype, first), to_dtype, block.data(), count);
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
