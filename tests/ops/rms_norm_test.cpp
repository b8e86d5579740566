// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/rms_norm.h"

#include "accordion/ops/composite.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

constexpr double kEps = 1e-5;

const Operator kFusedRmsNorm = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::rms_norm(in[0], in[1], kEps)};
};
const Operator kReferenceRmsNorm = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::composite::rms_norm(in[0], in[1], kEps)};
};

TEST(RmsNorm, MatchesTheCompositeInFp64) {
  for (const int64_t width : {1, 7, 64, 331}) {
    expect_matches(kFusedRmsNorm, kReferenceRmsNorm,
                   {sample({3, 5, width}, 1), sample({width}, 2)}, at::kFloat,
                   kFp32);
  }
}

TEST(RmsNorm, RoundsOnceInBf16) {
  expect_matches(kFusedRmsNorm, kReferenceRmsNorm,
                 {sample({3, 5, 120}, 1), sample({120}, 2)}, at::kBFloat16,
                 kBf16RoundedOnce);
}

TEST(RmsNorm, RoundsOnceInFp16) {
  expect_matches(kFusedRmsNorm, kReferenceRmsNorm,
                 {sample({3, 5, 120}, 1), sample({120}, 2)}, at::kHalf,
                 kFp16RoundedOnce);
}

TEST(RmsNorm, SumsSquaresThatFp16DoesNotHold) {
  const at::Tensor x = at::full({1, 64}, 3e4F).to(at::kHalf);
  EXPECT_TRUE(at::equal(ops::rms_norm(x, at::ones({64}, at::kHalf), kEps),
                        at::ones({1, 64}, at::kHalf)));
}

TEST(RmsNorm, TakesInputThatIsNotContiguous) {
  expect_matches(kFusedRmsNorm, kReferenceRmsNorm,
                 {sample({6, 33, 4}, 1).transpose(0, 1), sample({4}, 2)},
                 at::kFloat, kFp32);
}

TEST(RmsNorm, SumsWeightGradientsOverThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  expect_matches(kFusedRmsNorm, kReferenceRmsNorm,
                 {sample({200, 512}, 1), sample({512}, 2)}, at::kFloat, kFp32);
  at::set_num_threads(threads);
}

// Where parameters are freed between forward and backward and gathered again
// into the same storage, a copy kept for backward would go stale.
TEST(RmsNorm, KeepsTheWeightItselfForBackward) {
  const at::Tensor x = sample({4, 8}, 1).requires_grad_();
  const at::Tensor weight = sample({8}, 2).requires_grad_();
  const at::Tensor y = ops::rms_norm(x, weight, kEps);
  weight.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::Tensor fresh = sample({8}, 3);
  std::memcpy(weight.mutable_data_ptr(), fresh.const_data_ptr(),
              8 * sizeof(float));  // below autograd, as a gather does
  const at::Tensor got = torch::autograd::grad({y.sum()}, {x})[0];
  const at::Tensor leaf = x.detach().requires_grad_();
  const at::Tensor expected = torch::autograd::grad(
      {ops::rms_norm(leaf, fresh, kEps).sum()}, {leaf})[0];
  EXPECT_TRUE(at::equal(got, expected));
}

const Operator kFusedAddRmsNorm = [](const std::vector<at::Tensor>& in) {
  const auto [sum, normed] = ops::add_rms_norm(in[0], in[1], in[2], kEps);
  return std::vector{sum, normed.value()};
};
const Operator kReferenceAddRmsNorm = [](const std::vector<at::Tensor>& in) {
  const at::Tensor sum = in[0] + in[1];
  return std::vector{sum, ops::composite::rms_norm(sum, in[2], kEps)};
};

TEST(AddRmsNorm, MatchesTheCompositeInFp64) {
  // Not of width 1, where the norm is little more than the sign of the sum.
  for (const int64_t width : {3, 7, 64, 331}) {
    expect_matches(kFusedAddRmsNorm, kReferenceAddRmsNorm,
                   {sample({3, 5, width}, 1), sample({3, 5, width}, 2),
                    sample({width}, 3)},
                   at::kFloat, kFp32);
  }
}

TEST(AddRmsNorm, IsTheNormOfTheRoundedSum) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    // Enough of them that squares added in another order would be seen.
    const std::vector<at::Tensor> in = {sample({999, 120}, 1, dtype),
                                        sample({999, 120}, 2, dtype),
                                        sample({120}, 3, dtype)};
    const std::vector<at::Tensor> got = kFusedAddRmsNorm(in);
    EXPECT_TRUE(at::equal(got[0], in[0] + in[1]));
    EXPECT_TRUE(at::equal(got[1], ops::rms_norm(got[0], in[2], kEps)));
  }
}

// The two gradients are added in fp32, and rounded once.
TEST(AddRmsNorm, WithoutABranchTakesTheGradientOfTheStream) {
  const Operator fused = [](const std::vector<at::Tensor>& in) {
    const auto [stream, normed] = ops::add_rms_norm(in[0], {}, in[1], kEps);
    EXPECT_TRUE(at::equal(stream, in[0]));
    return std::vector{stream, normed.value()};
  };
  const Operator reference = [](const std::vector<at::Tensor>& in) {
    return std::vector{in[0] * 1, ops::composite::rms_norm(in[0], in[1], kEps)};
  };
  const std::vector<at::Tensor> in = {sample({3, 5, 120}, 1), sample({120}, 2)};
  expect_matches(fused, reference, in, at::kFloat, kFp32);
  expect_matches(fused, reference, in, at::kBFloat16, kBf16RoundedOnce);
  expect_matches(fused, reference, {in[0].transpose(0, 1), in[1]}, at::kFloat,
                 kFp32);
}

TEST(AddRmsNorm, TakesTheGradientOfEitherResultAlone) {
  for (const int used : {0, 1}) {
    const auto one_of = [used](const Operator& op) -> Operator {
      return [op, used](const std::vector<at::Tensor>& in) {
        // The weight takes part, so that it has a gradient.
        return std::vector{op(in)[used] + 0 * in[2].sum()};
      };
    };
    expect_matches(one_of(kFusedAddRmsNorm), one_of(kReferenceAddRmsNorm),
                   {sample({4, 24}, 1), sample({4, 24}, 2), sample({24}, 3)},
                   at::kFloat, kFp32);
  }
}

TEST(AddRmsNorm, NamesShapesThatDoNotFit) {
  EXPECT_VALUE_ERROR(ops::add_rms_norm(at::ones({2, 4}), at::ones({2, 1}),
                                       at::ones({4}), kEps),
                     "stream has shape [2, 4] but branch [2, 1]");
}

TEST(RmsNorm, NamesShapesThatDoNotFit) {
  EXPECT_VALUE_ERROR(ops::rms_norm(at::ones({2, 4}), at::ones({3}), kEps),
                     "weight has shape [3] but x [2, 4]");
}

}  // namespace
}  // namespace accordion::testing
