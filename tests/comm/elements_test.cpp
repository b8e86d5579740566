// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/comm/collective_checks.h"

namespace accordion::testing {
namespace {

using detail::convert;
using enum DType;

std::uint16_t narrowed(float value, DType dtype) {
  std::uint16_t bits = 0;
  convert(&bits, dtype, &value, Float32, 1);
  return bits;
}

float widened(std::uint16_t bits, DType dtype) {
  float value = 0;
  convert(&value, Float32, &bits, dtype, 1);
  return value;
}

TEST(Elements, EveryHalfWidthValueSurvivesTheRoundTrip) {
  for (const DType dtype : {Bfloat16, Float16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const float value = widened(half, dtype);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(widened(narrowed(value, dtype), dtype)));
      } else {
        ASSERT_EQ(narrowed(value, dtype), half) << name(dtype) << " " << bits;
      }
    }
  }
}

// Checks against the definition: the nearest of two neighbours, the even one
// when both are as near.
TEST(Elements, RoundingIsToNearestEven) {
  for (const DType dtype : {Bfloat16, Float16}) {
    for (std::uint16_t low :
         {0x0001, 0x0002, 0x03ff, 0x1234, 0x3c00, 0x3c01, 0x7000, 0x7bfe}) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const float a = widened(low, dtype);
      const float b = widened(high, dtype);
      const float middle = a + (b - a) / 2;
      const std::uint16_t even = low % 2 == 0 ? low : high;
      EXPECT_EQ(narrowed(middle, dtype), even) << name(dtype) << " " << low;
      EXPECT_EQ(narrowed(std::nextafter(middle, a), dtype), low);
      EXPECT_EQ(narrowed(std::nextafter(middle, b), dtype), high);
      EXPECT_EQ(narrowed(-middle, dtype), even | 0x8000);
    }
  }
}

TEST(Elements, LargeValuesRoundToInfinityAndNanStaysNan) {
  EXPECT_EQ(narrowed(65519.0f, Float16), 0x7bff);
  EXPECT_EQ(narrowed(65520.0f, Float16), 0x7c00);
  EXPECT_EQ(narrowed(std::numeric_limits<float>::max(), Bfloat16), 0x7f80);
  EXPECT_EQ(narrowed(-std::numeric_limits<float>::infinity(), Float16), 0xfc00);
  // A NaN whose upper half looks like infinity.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(widened(narrowed(nan, Bfloat16), Bfloat16)));
  EXPECT_TRUE(std::isnan(widened(narrowed(nan, Float16), Float16)));
  // The smallest fp16, half of it (to even: zero), and a little more.
  EXPECT_EQ(narrowed(std::ldexp(1.0f, -24), Float16), 0x0001);
  EXPECT_EQ(narrowed(std::ldexp(1.0f, -25), Float16), 0x0000);
  EXPECT_EQ(narrowed(std::ldexp(1.01f, -25), Float16), 0x0001);
}

// Rounded to bf16 after each addition the sum would stay at 256.
TEST(Elements, SumsAreInSinglePrecisionWhateverTheWire) {
  const std::uint16_t big = narrowed(256.0f, Bfloat16);
  const std::uint16_t one = narrowed(1.0f, Bfloat16);
  const std::array<const void*, 3> sources = {&big, &one, &one};
  float sum = 0;
  detail::reduce(sources, Bfloat16, {&sum, Float32, Float32, 1.0, false}, 1);
  EXPECT_EQ(sum, 258.0f);
  detail::reduce(sources, Bfloat16, {&sum, Float32, Bfloat16, 0.5, true}, 1);
  EXPECT_EQ(sum, 258.0f + 129.0f);
}

std::vector<float> random_values(std::size_t numel, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(numel);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// From and to every alignment, with what lies behind left alone.
TEST(Elements, ConversionsPastTheCacheAreTheSame) {
  const std::vector<float> values = random_values(1100, 3);
  for (const auto& [from, to] :
       {std::pair(Float32, Float32), std::pair(Float32, Bfloat16),
        std::pair(Bfloat16, Bfloat16), std::pair(Bfloat16, Float32),
        std::pair(Float32, Float16)}) {
    alignas(64) std::array<std::byte, 5000> source{};
    convert(source.data(), from, values.data(), Float32, 1100);
    for (const std::int64_t numel : {0, 1, 16, 31, 32, 33, 64, 1000}) {
      for (const std::int64_t at : {0, 1, 16, 37}) {
        alignas(64) std::array<std::byte, 5000> expected{};
        alignas(64) std::array<std::byte, 5000> got{};
        convert(detail::offset(expected.data(), to, at), to,
                detail::offset(source.data(), from, at), from, numel);
        detail::convert_past_cache(detail::offset(got.data(), to, at), to,
                                   detail::offset(source.data(), from, at),
                                   from, numel);
        EXPECT_EQ(got, expected) << name(from) << " to " << name(to) << ", "
                                 << numel << " at " << at;
      }
    }
  }
}

// Every loop of a sum, against its definition: the ranks in order, each step
// rounded once, no product fused with a sum.
TEST(Elements, SumsAreTheSameWhateverTheLoop) {
  constexpr std::size_t kNumel = 1333;
  const std::vector<float> before = random_values(kNumel + 1, 99);
  for (const DType wire : {Float32, Bfloat16}) {
    for (const std::size_t num_sources : {1u, 2u, 3u, 4u}) {
      std::vector<std::vector<std::byte>> operands;
      std::vector<const void*> sources;
      std::vector<float> sums(kNumel);
      for (unsigned rank = 0; rank < num_sources; ++rank) {
        std::vector<float> values = random_values(kNumel, rank);
        operands.emplace_back(kNumel * 4);
        convert(operands.back().data(), wire, values.data(), Float32, kNumel);
        convert(values.data(), Float32, operands.back().data(), wire, kNumel);
        sources.push_back(operands.back().data());
        for (std::size_t i = 0; i < kNumel; ++i) {
          sums[i] = rank == 0 ? values[i] : sums[i] + values[i];
        }
      }
      for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7}) {
        const bool accumulate = (bits & 1) != 0;
        const bool past_cache = (bits & 2) != 0;
        const std::size_t at = (bits & 4) != 0 ? 1 : 0;  // where `local` starts
        alignas(64) std::array<float, kNumel + 1> local{};
        std::copy(before.begin(), before.end(), local.begin());
        detail::reduce(sources, wire,
                       {local.data() + at, Float32, Float32, 0.3, accumulate,
                        nullptr, past_cache},
                       kNumel);
        for (std::size_t i = 0; i < kNumel; ++i) {
          const float scaled = sums[i] * 0.3f;
          ASSERT_EQ(local[at + i],
                    accumulate ? before[at + i] + scaled : scaled)
              << name(wire) << " of " << num_sources << ", case " << bits
              << ", element " << i;
        }
      }
    }
  }
}

// In place, as an all-reduce does, and by way of fp16 where that is asked.
TEST(Elements, SumsToBf16AreRoundedOnce) {
  constexpr std::size_t kNumel = 1333;
  for (const std::size_t num_sources : {1u, 2u, 3u, 4u}) {
    for (const DType reduce_dtype : {Bfloat16, Float32, Float16}) {
      std::vector<std::vector<std::uint16_t>> operands;
      std::vector<const void*> sources;
      std::vector<float> sums(kNumel);
      for (unsigned rank = 0; rank < num_sources; ++rank) {
        operands.emplace_back(kNumel);
        convert(operands.back().data(), Bfloat16,
                random_values(kNumel, rank).data(), Float32, kNumel);
        for (std::size_t i = 0; i < kNumel; ++i) {
          const float value = widened(operands.back()[i], Bfloat16);
          sums[i] = rank == 0 ? value : sums[i] + value;
        }
      }
      for (const auto& operand : operands) {
        sources.push_back(operand.data());
      }
      std::vector<std::uint16_t>& local = operands.back();
      detail::reduce(sources, Bfloat16,
                     {local.data(), Bfloat16, reduce_dtype, 0.3, false},
                     kNumel);
      for (std::size_t i = 0; i < kNumel; ++i) {
        float sum = sums[i] * 0.3f;
        if (reduce_dtype == Float16) {
          sum = widened(narrowed(sum, Float16), Float16);
        }
        ASSERT_EQ(local[i], narrowed(sum, Bfloat16))
            << num_sources << " in " << name(reduce_dtype) << ", element " << i;
      }
    }
  }
}

TEST(Elements, SumMayReplaceOneOfItsSources) {
  std::vector<float> a(5000, 1.0f);
  std::vector<float> b(5000, 2.0f);
  const std::array<const void*, 2> sources = {a.data(), b.data()};
  detail::reduce(sources, Float32, {b.data(), Float32, Float32, 1.0, false},
                 5000);
  EXPECT_EQ(b[0], 3.0f);
  EXPECT_EQ(b[4999], 3.0f);
}

TEST(Elements, IntegersAreSummedExactly) {
  const std::int64_t a = (std::int64_t{1} << 53) + 1;
  const std::int64_t b = 2;
  std::int64_t sum = 10;
  const std::array<const void*, 2> sources = {&a, &b};
  detail::reduce(sources, Int64, {&sum, Int64, Int64, 1.0, true}, 1);
  EXPECT_EQ(sum, (std::int64_t{1} << 53) + 13);
}

TEST(Elements, ImpossiblePartsAreErrors) {
  const auto gather = [](DType from, DType to) {
    return message_of([&] {
      detail::check_part(GatherPart{nullptr, from, nullptr, to, 1}, "here");
    });
  };
  EXPECT_NE(gather(Int64, Float32).find("[here] cannot convert int64 to fp32"),
            std::string::npos);
  const ReducePart scaled = {nullptr, Int32, nullptr, Int32, Int32, 1, 0.5};
  EXPECT_NE(message_of([&] {
              detail::check_part(scaled, "here");
            }).find("[here] cannot reduce int32 by 0.5"),
            std::string::npos);
  double squares = 0;
  const ReducePart counted = {.full = nullptr,
                              .full_dtype = Int64,
                              .local = nullptr,
                              .local_dtype = Int64,
                              .reduce_dtype = Int64,
                              .numel = 1,
                              .sum_of_squares = &squares};
  EXPECT_NE(message_of([&] {
              detail::check_part(counted, "here");
            }).find("[here] no sum of squares of int64"),
            std::string::npos);
  const ReducePart bytes = {nullptr, Uint8, nullptr, Uint8, Uint8, 1};
  EXPECT_NE(message_of([&] {
              detail::check_part(bytes, "here");
            }).find("use floating point dtypes"),
            std::string::npos);
  const ReducePart negative = {nullptr, Float32, nullptr, Float32, Float32, -1};
  EXPECT_NE(message_of([&] {
              detail::check_part(negative, "here");
            }).find("a part has -1 elements"),
            std::string::npos);
}

TEST(Elements, RangesOfAnAllReduceCoverEachElementOnce) {
  for (const int world_size : {1, 2, 3, 7, 64}) {
    for (const std::int64_t numel : {0, 1, 63, 64, 65, 1000, 100'003}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const auto range = detail::all_reduce_range(numel, rank, world_size);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.count, 0);
        next += range.count;
      }
      EXPECT_EQ(next, numel);
    }
  }
}

}  // namespace
}  // namespace accordion::testing
