// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/rope.h"

#include <cmath>

#include "accordion/ops/composite.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

Operator rope_with(const ops::RopeTable& table, bool fused) {
  return [table, fused](const std::vector<at::Tensor>& in) {
    auto [q, k] = fused ? ops::rope(in[0], in[1], table)
                        : ops::composite::rope(in[0], in[1], table);
    return std::vector{q, k};
  };
}

void expect_rope_matches(const std::vector<at::Tensor>& inputs,
                         at::ScalarType dtype, Tolerance tolerance) {
  const ops::RopeTable table = ops::make_rope_table(
      inputs[0].size(1), inputs[0].size(3), 10000.0, dtype);
  expect_matches(rope_with(table, true), rope_with(table, false), inputs, dtype,
                 tolerance);
}

TEST(Rope, MatchesTheCompositeInFp64) {
  expect_rope_matches({sample({2, 13, 4, 6}, 1), sample({2, 13, 2, 6}, 2)},
                      at::kFloat, kFp32);
  expect_rope_matches({sample({1, 40, 3, 64}, 1), sample({1, 40, 3, 64}, 2)},
                      at::kFloat, kFp32);
}

TEST(Rope, RoundsOnceInBf16) {
  expect_rope_matches({sample({2, 13, 4, 32}, 1), sample({2, 13, 2, 32}, 2)},
                      at::kBFloat16, kBf16RoundedOnce);
}

TEST(Rope, RoundsOnceInFp16) {
  expect_rope_matches({sample({2, 13, 4, 32}, 1), sample({2, 13, 2, 32}, 2)},
                      at::kHalf, kFp16RoundedOnce);
}

TEST(Rope, TakesInputThatIsNotContiguous) {
  expect_rope_matches({sample({2, 4, 13, 8}, 1).transpose(1, 2),
                       sample({2, 13, 2, 16}, 2).narrow(3, 3, 8)},
                      at::kFloat, kFp32);
}

TEST(Rope, TableHoldsTheAnglesOfEachPosition) {
  const ops::RopeTable table = ops::make_rope_table(5, 8, 500.0, at::kFloat);
  for (int64_t position = 0; position < 5; ++position) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(500.0, -2.0 * i / 8);
      EXPECT_NEAR(table.cos[position][i].item<double>(), std::cos(angle), 1e-6);
      EXPECT_NEAR(table.sin[position][i].item<double>(), std::sin(angle), 1e-6);
    }
  }
}

TEST(Rope, NamesATableThatDoesNotFit) {
  const ops::RopeTable table = ops::make_rope_table(5, 8, 500.0, at::kFloat);
  const at::Tensor x = at::ones({1, 6, 2, 8});
  EXPECT_VALUE_ERROR(ops::rope(x, x, table), "and the table [5, 4]");
}

}  // namespace
}  // namespace accordion::testing
