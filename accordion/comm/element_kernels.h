// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Loops over elements, one type combination each. They hold no decisions, so
// that the compiler turns each into vector code for the CPU it runs on.
namespace accordion::detail {

/// Independent sums of add_squares: as many as keep the vector units busy.
inline constexpr std::int64_t kSquareLanes = 64;

void bf16_to_fp32(float* to, const std::uint16_t* from, std::int64_t numel);
void fp32_to_bf16(std::uint16_t* to, const float* from, std::int64_t numel);
void fp16_to_fp32(float* to, const std::uint16_t* from, std::int64_t numel);
void fp32_to_fp16(std::uint16_t* to, const float* from, std::int64_t numel);

/// sum[i] += from[i]
void add_fp32(float* sum, const float* from, std::int64_t numel);
void add_bf16(float* sum, const std::uint16_t* from, std::int64_t numel);
void add_fp64(double* sum, const double* from, std::int64_t numel);

/// Copies, and conversions, that leave the caches alone: the lines of `to` are
/// neither read first nor kept. For results that are larger than the caches.
void copy_past_cache(void* to, const void* from, std::int64_t bytes);
void fp32_to_bf16_past_cache(std::uint16_t* to, const float* from,
                             std::int64_t numel);
void bf16_to_fp32_past_cache(float* to, const std::uint16_t* from,
                             std::int64_t numel);

/// What becomes of the sums of a pair.
enum class Store { Plain, PastCache, Add };

/// to[i] = (a[i] + b[i]) * scale, or is added to by that. Where `lanes` is not
/// null, the squares of what to[i] then is are added to them as add_squares
/// does. `to` may be `a` or `b`, unless past the cache.
///
/// One loop does it all: it waits for memory, so that what it computes in
/// between costs nothing.
void sum_pair(float* to, const float* a, const float* b, float scale,
              Store store, double* lanes, std::int64_t numel);
void sum_pair(float* to, const std::uint16_t* a, const std::uint16_t* b,
              float scale, Store store, double* lanes, std::int64_t numel);
void sum_pair(float* to, const float* a, const std::uint16_t* b, float scale,
              Store store, double* lanes, std::int64_t numel);

/// The same, rounded to bf16 once.
void sum_pair(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b,
              float scale, std::int64_t numel);
void sum_pair(std::uint16_t* to, const float* a, const std::uint16_t* b,
              float scale, std::int64_t numel);

void scale_fp32(float* values, float scale, std::int64_t numel);
void scale_fp64(double* values, double scale, std::int64_t numel);

/// lanes[i % kSquareLanes] += from[i]^2, in fp64.
void add_squares_fp32(double* lanes, const float* from, std::int64_t numel);
void add_squares_fp64(double* lanes, const double* from, std::int64_t numel);

}  // namespace accordion::detail
