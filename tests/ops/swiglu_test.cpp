// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/swiglu.h"

#include "accordion/ops/composite.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

const Operator kFusedSwiglu = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::swiglu(in[0], in[1])};
};
const Operator kReferenceSwiglu = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::composite::swiglu(in[0], in[1])};
};

TEST(Swiglu, MatchesTheCompositeInFp64) {
  for (const int64_t width : {1, 19, 344}) {
    expect_matches(kFusedSwiglu, kReferenceSwiglu,
                   {sample({3, 7, width}, 1).mul(5), sample({3, 7, width}, 2)},
                   at::kFloat, kFp32);
  }
}

TEST(Swiglu, RoundsOnceInBf16) {
  expect_matches(kFusedSwiglu, kReferenceSwiglu,
                 {sample({5, 121}, 1), sample({5, 121}, 2)}, at::kBFloat16,
                 kBf16RoundedOnce);
}

TEST(Swiglu, RoundsOnceInFp16) {
  expect_matches(kFusedSwiglu, kReferenceSwiglu,
                 {sample({5, 121}, 1), sample({5, 121}, 2)}, at::kHalf,
                 kFp16RoundedOnce);
}

TEST(Swiglu, TakesInputThatIsNotContiguous) {
  expect_matches(kFusedSwiglu, kReferenceSwiglu,
                 {sample({9, 31}, 1).t(), sample({31, 18}, 2).narrow(1, 4, 9)},
                 at::kFloat, kFp32);
}

TEST(Swiglu, StaysFiniteForLargeGates) {
  const at::Tensor gate = at::tensor({-1e4F, -100.F, 0.F, 100.F, 1e4F});
  const at::Tensor y = ops::swiglu(gate, at::ones({5}));
  EXPECT_TRUE(
      at::allclose(y, at::tensor({0.F, 0.F, 0.F, 100.F, 1e4F}), 1e-6, 1e-30));
}

TEST(Swiglu, NamesShapesThatDiffer) {
  EXPECT_VALUE_ERROR(ops::swiglu(at::ones({2, 4}), at::ones({2, 3})),
                     "gate has shape [2, 4] but up [2, 3]");
}

}  // namespace
}  // namespace accordion::testing
