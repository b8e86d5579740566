// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/ops/kernels/attention_kernels.h"
#include "accordion/ops/kernels/matrix_layout.h"
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

TEST(FastExp, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (double x = -86.9; x < 87.9; x += 0.00137) {
    const auto argument = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::abs(fast_exp(argument) - exact) / exact);
  }
  EXPECT_LT(worst, 2 * std::numeric_limits<float>::epsilon());
}

TEST(FastExp, ClampsAndKeepsNotANumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_LT(fast_exp(-kInfinity), 2e-38F);
  EXPECT_GT(fast_exp(kInfinity), 1e38F);
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_TRUE(std::isnan(fast_exp(std::nanf(""))));
}

Bf16 bf16(float value) {
  Bf16 result;
  store(result, value);
  return result;
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0F + 1.0F / 256).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(bf16(1.0F + 3.0F / 256).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(bf16(1.0F + 1.0F / 255).bits, 0x3f81);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(bf16(std::nanf("")))));
}

Fp16 fp16(float value) {
  Fp16 result;
  store(result, value);
  return result;
}

TEST(Fp16, EachHalfIsItselfAgain) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(Fp16{static_cast<std::uint16_t>(bits)});
    const bool is_nan = (bits & 0x7fffU) > 0x7c00U;
    ASSERT_EQ(std::isnan(value), is_nan) << bits;
    if (!is_nan) {
      ASSERT_EQ(fp16(value).bits, bits);
    }
  }
  EXPECT_EQ(to_float(Fp16{1}), std::ldexp(1.0F, -24));
  EXPECT_EQ(to_float(Fp16{0x7bff}), 65504.0F);
}

TEST(Fp16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(fp16(1.0F + 1.0F / 2048).bits, 0x3c00);  // tie, even below
  EXPECT_EQ(fp16(1.0F + 3.0F / 2048).bits, 0x3c02);  // tie, even above
  EXPECT_EQ(fp16(1.0F + 1.0F / 2047).bits, 0x3c01);
  EXPECT_EQ(fp16(std::ldexp(1.0F, -25)).bits, 0);
  EXPECT_EQ(fp16(std::ldexp(3.0F, -25)).bits, 2);
  EXPECT_EQ(fp16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(fp16(-65520.0F).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(fp16(std::nanf("")))));
}

/// Element (i, j) of a matrix that names its place.
std::vector<Bf16> numbered(std::int64_t rows, std::int64_t stride) {
  std::vector<Bf16> result(rows * stride);
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    result[i].bits = static_cast<std::uint16_t>(i + 1);
  }
  return result;
}

TEST(Pack, InterleavesPairsOfRowsAndFillsTheLast) {
  constexpr std::int64_t kRows = 21;
  constexpr std::int64_t kColumns = 35;
  constexpr std::int64_t kStride = 40;
  const auto from = numbered(kRows, kStride);
  std::vector<Bf16> to(22 * kColumns, Bf16{0xffff});
  pack({from.data(), kRows, kColumns, kStride}, to.data());
  for (std::int64_t i = 0; i < 22; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const int expected =
          i < kRows ? static_cast<int>(i * kStride + j + 1) : 0;
      EXPECT_EQ(to[i / 2 * 2 * kColumns + 2 * j + i % 2].bits, expected);
    }
  }
}

TEST(Pack, TransposedEqualsPackOfTheTranspose) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kColumns = 21;
  const auto from = numbered(kRows, kColumns);
  std::vector<Bf16> turned(kColumns * kRows);
  transpose({from.data(), kRows, kColumns, kColumns}, turned.data(), kRows);
  std::vector<Bf16> expected(22 * kRows);
  pack({turned.data(), kColumns, kRows, kRows}, expected.data());
  std::vector<Bf16> got(22 * kRows);
  pack_transposed({from.data(), kRows, kColumns, kColumns}, got.data());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].bits, expected[i].bits) << i;
  }
}

/// Every remainder of the blocks in which words are transposed, and strips.
TEST(Transpose, EqualsElementByElementInEverySize) {
  for (const std::int64_t rows : {1, 2, 7, 15, 16, 31, 32, 33, 70}) {
    for (const std::int64_t columns : {1, 3, 8, 9, 31, 32, 33, 65}) {
      const std::int64_t stride = columns + 3;
      const std::int64_t to_stride = rows + 1;
      const auto halves = numbered(rows, stride);
      std::vector<float> floats(rows * stride);
      for (std::int64_t i = 0; i < rows * stride; ++i) {
        floats[i] = 1.0F + static_cast<float>(i) / 512.0F;
      }
      floats[0] = std::numeric_limits<float>::quiet_NaN();
      std::vector<Bf16> turned(columns * to_stride, Bf16{0xffff});
      std::vector<float> wide(columns * to_stride, -1.0F);
      std::vector<Bf16> rounded(columns * to_stride, Bf16{0xffff});
      transpose({halves.data(), rows, columns, stride}, turned.data(),
                to_stride);
      transpose(MatrixView<float>{floats.data(), rows, columns, stride},
                wide.data(), to_stride);
      transpose(MatrixView<float>{floats.data(), rows, columns, stride},
                rounded.data(), to_stride);
      for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t at = i * stride + j;
          const std::int64_t to = j * to_stride + i;
          Bf16 expected;
          store(expected, floats[at]);
          ASSERT_EQ(turned[to].bits, halves[at].bits) << rows << columns;
          ASSERT_EQ(rounded[to].bits, expected.bits) << rows << columns;
          ASSERT_TRUE(wide[to] == floats[at] || at == 0) << rows << columns;
        }
        ASSERT_EQ(turned[j * to_stride + rows].bits, 0xffff);
        ASSERT_EQ(wide[j * to_stride + rows], -1.0F);
        ASSERT_EQ(rounded[j * to_stride + rows].bits, 0xffff);
      }
    }
  }
}

TEST(Transpose, LeavesWhatLiesBeyond) {
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};  // [3, 2]
  std::vector<float> to(2 * 4, -1.0F);
  transpose(MatrixView<float>{from.data(), 3, 2, 2}, to.data(), 4);
  EXPECT_EQ(to, (std::vector<float>{1, 3, 5, -1, 2, 4, 6, -1}));
}

TEST(Softmax, IgnoresScoresAboveTheDiagonal) {
  const std::vector<float> scores = {0, 9, 9, 0, 0, 9};  // 2 queries, 3 keys
  std::vector<float> weights(2 * 4, -1.0F);
  float inverse[2];
  float logs[2];
  softmax({0, 2, 3, 3, 1.0F}, scores.data(), weights.data(), 4, inverse, logs);
  EXPECT_EQ(weights, (std::vector<float>{1, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(inverse[1], 0.5F);
  EXPECT_NEAR(logs[1], std::log(2.0), 1e-6);
}

TEST(Softmax, IgnoresScoresBeforeTheWindow) {
  const std::vector<float> scores = {9, 0, 0, 9, 9, 9, 0, 0};  // 2 x 4
  std::vector<float> weights(2 * 4, -1.0F);
  float inverse[2];
  float logs[2];
  softmax({2, 2, 4, 2, 1.0F}, scores.data(), weights.data(), 4, inverse, logs);
  EXPECT_EQ(weights, (std::vector<float>{0, 1, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(inverse[0], 0.5F);
}

TEST(SoftmaxBackward, IsZeroOutsideTheWindow) {
  const std::vector<float> zeros(4 * 2);  // 4 keys, 2 queries
  const std::vector<float> dweights(4 * 2, 3.0F);
  const float logs[2] = {0, 0};
  const float deltas[2] = {1, 1};
  std::vector<float> weights(4 * 2, -1.0F);
  std::vector<float> dscores(4 * 2, -1.0F);
  softmax_backward({2, 2, 4, 2, 1.0F}, zeros.data(), dweights.data(), logs,
                   deltas, weights.data(), dscores.data(), 2);
  EXPECT_EQ(weights, (std::vector<float>{0, 0, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(dscores, (std::vector<float>{0, 0, 2, 0, 2, 2, 0, 2}));
}

}  // namespace
}  // namespace accordion::kernels
