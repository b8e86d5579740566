// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/square_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "accordion/comm/elements.h"
#include "accordion/comm/part_reducer.h"

namespace accordion::testing {
namespace {

using detail::offset;
using detail::SquareSum;
using enum DType;

// Normal numbers times powers of ten: squares over 18 orders of magnitude.
std::vector<float> spread_values(std::int64_t numel, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-6, 3);
  std::vector<float> values(static_cast<std::size_t>(numel));
  for (float& value : values) {
    value = normal(random) * std::pow(10.0f, exponent(random));
  }
  return values;
}

std::vector<std::byte> converted(const std::vector<float>& values,
                                 DType dtype) {
  const auto numel = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> data(
      static_cast<std::size_t>(numel * element_bytes(dtype)));
  detail::convert(data.data(), dtype, values.data(), Float32, numel);
  return data;
}

long double exact(const std::vector<std::byte>& data, DType dtype,
                  std::int64_t numel) {
  std::vector<double> values(static_cast<std::size_t>(numel));
  detail::convert(values.data(), Float64, data.data(), dtype, numel);
  long double sum = 0;
  for (const double value : values) {
    sum += static_cast<long double>(value) * value;
  }
  return sum;
}

double total(const void* data, DType dtype, std::int64_t numel) {
  SquareSum sum;
  sum.add(data, dtype, numel);
  return sum.total();
}

TEST(SquareSum, IsThatOfFp64ForEveryDtypeAndLength) {
  for (const DType dtype : {Float32, Bfloat16, Float16, Float64}) {
    for (const std::int64_t numel :
         {0, 1, 63, 64, 65, 127, 129, 2047, 2048, 2049, 100'003}) {
      const auto data = converted(spread_values(numel, 7), dtype);
      const auto expected = static_cast<double>(exact(data, dtype, numel));
      EXPECT_NEAR(total(data.data(), dtype, numel), expected, 1e-13 * expected)
          << name(dtype) << " " << numel;
    }
  }
}

// What fp32 could not add, nor square.
TEST(SquareSum, SmallAndLargeValuesCount) {
  std::vector<float> values(1 << 20, 1e-4f);
  values[0] = 1.0f;
  const double small = double{1e-4f} * double{1e-4f};
  EXPECT_NEAR(total(values.data(), Float32, 1 << 20),
              1.0 + ((1 << 20) - 1) * small, 1e-9);
  const std::array<float, 2> extreme = {1e-30f, 1e30f};
  EXPECT_NEAR(total(extreme.data(), Float32, 1), 1e-60, 1e-66);
  EXPECT_NEAR(total(extreme.data(), Float32, 2), 1e60, 1e54);
}

TEST(SquareSum, DoesNotDependOnThePieces) {
  constexpr std::int64_t kNumel = 20'011;
  const std::vector<float> values = spread_values(kNumel, 11);
  for (const DType dtype : {Float32, Bfloat16, Float64}) {
    const auto data = converted(values, dtype);
    const double whole = total(data.data(), dtype, kNumel);
    for (const std::int64_t piece : {64, 192, 2048, 4160}) {
      SquareSum sum;
      for (std::int64_t first = 0; first < kNumel; first += piece) {
        sum.add(offset(data.data(), dtype, first), dtype,
                std::min(piece, kNumel - first));
      }
      EXPECT_EQ(sum.total(), whole) << name(dtype) << " by " << piece;
    }
  }
}

TEST(SquareSum, NanAndInfinityPassThrough) {
  for (const DType dtype : {Float32, Bfloat16, Float16, Float64}) {
    for (const std::size_t at : {0u, 64u, 129u}) {
      std::vector<float> values(130, 1.0f);
      values[at] = -std::numeric_limits<float>::infinity();
      EXPECT_EQ(total(converted(values, dtype).data(), dtype, 130),
                std::numeric_limits<double>::infinity());
      values[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(
          std::isnan(total(converted(values, dtype).data(), dtype, 130)));
    }
  }
}

// Where the sum goes straight to `local`, and where it passes a block: rounded,
// added, narrowed, or of three sources.
TEST(SquareSum, OfAReductionIsThatOfWhatItLeaves) {
  constexpr std::int64_t kNumel = 5003;
  struct Case {
    DType wire;
    DType reduce;
    DType local;
    bool accumulate;
  };
  for (const Case& c : {Case{Float32, Float32, Float32, false},
                        Case{Float32, Float32, Float32, true},
                        Case{Bfloat16, Float32, Float32, false},
                        Case{Float32, Bfloat16, Float32, true},
                        Case{Bfloat16, Bfloat16, Bfloat16, true},
                        Case{Float16, Float32, Float16, false},
                        Case{Float64, Float64, Float64, true},
                        Case{Float64, Float32, Bfloat16, false}}) {
    for (const std::size_t num_sources : {1u, 2u, 3u}) {
      std::vector<std::vector<std::byte>> operands;
      std::vector<const void*> sources;
      for (unsigned rank = 0; rank < num_sources; ++rank) {
        operands.push_back(converted(spread_values(kNumel, rank), c.wire));
        sources.push_back(operands.back().data());
      }
      auto local = converted(std::vector<float>(kNumel, 3.0f), c.local);
      double squares = -1;
      const ReducePart part = {nullptr, c.wire, local.data(), c.local, c.reduce,
                               kNumel,  0.3,    c.accumulate, &squares};
      detail::reduce(sources, part);
      EXPECT_EQ(squares, total(local.data(), c.local, kNumel))
          << name(c.wire) << " to " << name(c.local) << " of " << num_sources;
      const auto expected = static_cast<double>(exact(local, c.local, kNumel));
      EXPECT_NEAR(squares, expected, 1e-13 * expected);
    }
  }
}

TEST(SquareSum, OfAnEmptyPartIsZero) {
  double squares = -1;
  const ReducePart part = {.full = nullptr,
                           .full_dtype = Float32,
                           .local = nullptr,
                           .local_dtype = Float32,
                           .reduce_dtype = Float32,
                           .numel = 0,
                           .sum_of_squares = &squares};
  detail::reduce({}, part);
  EXPECT_EQ(squares, 0.0);
}

}  // namespace
}  // namespace accordion::testing
