// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/gelu.h"

#include "accordion/ops/composite.h"
#include "accordion/ops/linear.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

using ops::GeluForm;

constexpr GeluForm kForms[] = {GeluForm::Exact, GeluForm::Tanh};

/// Of x, or of x and a bias.
Operator fused(GeluForm form) {
  return [form](const std::vector<at::Tensor>& in) {
    return std::vector{
        ops::gelu(in[0], form, in.size() > 1 ? in[1] : at::Tensor())};
  };
}
Operator reference(GeluForm form) {
  return [form](const std::vector<at::Tensor>& in) {
    return std::vector{ops::composite::gelu(
        in[0], form, in.size() > 1 ? in[1] : at::Tensor())};
  };
}

TEST(Gelu, MatchesTheCompositeInFp64) {
  for (const GeluForm form : kForms) {
    for (const int64_t width : {1, 19, 344}) {
      const at::Tensor x = sample({3, 7, width}, 1).mul(3);
      expect_matches(fused(form), reference(form), {x}, at::kFloat, kFp32);
      expect_matches(fused(form), reference(form), {x, sample({width}, 2)},
                     at::kFloat, kFp32);
    }
  }
}

TEST(Gelu, RoundsOnce) {
  for (const GeluForm form : kForms) {
    const std::vector<at::Tensor> in = {sample({5, 121}, 1).mul(2),
                                        sample({121}, 2)};
    expect_matches(fused(form), reference(form), in, at::kBFloat16,
                   kBf16RoundedOnce);
    expect_matches(fused(form), reference(form), in, at::kHalf,
                   kFp16RoundedOnce);
  }
}

// 1/2 (1 + erf) would leave nothing of the tail below -5.5 in fp32.
TEST(Gelu, KeepsTheTailBelowZero) {
  const at::Tensor x = at::linspace(-12.4, 0, 20'001);
  const at::Tensor exact =
      x.to(at::kDouble) * at::special_erfc(x.to(at::kDouble) * -M_SQRT1_2) / 2;
  expect_close(ops::gelu(x), exact, {1e-5, 0}, "tail");
}

TEST(Gelu, StaysFiniteFarFromZero) {
  for (const GeluForm form : kForms) {
    const at::Tensor x =
        at::tensor({-3e38F, -1e4F, -100.F, 0.F, 100.F, 1e4F, 3e38F})
            .requires_grad_();
    const at::Tensor y = ops::gelu(x, form);
    EXPECT_TRUE(at::allclose(
        y, at::tensor({0.F, 0.F, 0.F, 0.F, 100.F, 1e4F, 3e38F}), 1e-6, 3e5))
        << y;
    EXPECT_TRUE(at::allclose(torch::autograd::grad({y.sum()}, {x})[0],
                             at::tensor({0.F, 0.F, 0.F, 0.5F, 1.F, 1.F, 1.F}),
                             1e-6, 1e-30));
    EXPECT_TRUE(ops::gelu(at::full({3}, NAN), form).isnan().all().item<bool>());
  }
}

TEST(Gelu, TakesInputThatIsNotContiguous) {
  for (const GeluForm form : kForms) {
    expect_matches(fused(form), reference(form), {sample({9, 31}, 1).t()},
                   at::kFloat, kFp32);
    expect_matches(fused(form), reference(form),
                   {sample({9, 31}, 1).t(), sample({18}, 2).slice(0, 0, 18, 2)},
                   at::kFloat, kFp32);
  }
}

TEST(Gelu, SumsGradientsOfTheBiasOverThreads) {
  const std::vector<at::Tensor> in = {sample({200, 512}, 1), sample({512}, 2)};
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  expect_matches(fused(GeluForm::Tanh), reference(GeluForm::Tanh), in,
                 at::kFloat, kFp32);
  const Results once =
      run_with_gradients(fused(GeluForm::Exact), in, at::kFloat);
  const Results again =
      run_with_gradients(fused(GeluForm::Exact), in, at::kFloat);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(once.gradients[1], again.gradients[1]));
}

TEST(Gelu, ComputedAgainHasTheGradientsOfOneThatIsKept) {
  for (const bool has_bias : {false, true}) {
    const auto projected = [has_bias](auto gelu) -> Operator {
      return [gelu, has_bias](const std::vector<at::Tensor>& in) {
        return std::vector{ops::linear(gelu(in[0], GeluForm::Exact,
                                            has_bias ? in[2] : at::Tensor()),
                                       in[1]) +
                           0 * in[2].sum()};
      };
    };
    const std::vector<at::Tensor> in = {sample({9, 24}, 1), sample({5, 24}, 2),
                                        sample({24}, 3)};
    const Results kept =
        run_with_gradients(projected(ops::gelu), in, at::kFloat);
    const Results again =
        run_with_gradients(projected(ops::recomputed_gelu), in, at::kFloat);
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
    }
  }
}

TEST(Gelu, NamesShapesThatDoNotFit) {
  EXPECT_VALUE_ERROR(
      ops::gelu(at::ones({2, 4}), GeluForm::Exact, at::ones({3})),
      "bias has shape [3] but x [2, 4]");
}

}  // namespace
}  // namespace accordion::testing
