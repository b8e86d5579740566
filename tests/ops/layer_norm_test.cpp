// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/layer_norm.h"

#include "accordion/ops/composite.h"
#include "accordion/ops/linear.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

constexpr double kEps = 1e-5;

const Operator kFusedLayerNorm = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::layer_norm(in[0], in[1], in[2], kEps)};
};
const Operator kReferenceLayerNorm = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::composite::layer_norm(in[0], in[1], in[2], kEps)};
};

std::vector<at::Tensor> inputs(int64_t width) {
  return {sample({3, 5, width}, 1), sample({width}, 2), sample({width}, 3)};
}

TEST(LayerNorm, MatchesTheCompositeInFp64) {
  // Not of width 1 or 2, where the norm is little more than a sign, and its
  // gradient what is left when terms cancel.
  for (const int64_t width : {3, 7, 64, 331}) {
    expect_matches(kFusedLayerNorm, kReferenceLayerNorm, inputs(width),
                   at::kFloat, kFp32);
  }
}

TEST(LayerNorm, OfOneElementIsTheBias) {
  const std::vector<at::Tensor> in = inputs(1);
  EXPECT_TRUE(at::equal(kFusedLayerNorm(in)[0], in[2].expand({3, 5, 1})));
}

TEST(LayerNorm, RoundsOnce) {
  expect_matches(kFusedLayerNorm, kReferenceLayerNorm, inputs(120),
                 at::kBFloat16, kBf16RoundedOnce);
  expect_matches(kFusedLayerNorm, kReferenceLayerNorm, inputs(120), at::kHalf,
                 kFp16RoundedOnce);
}

TEST(LayerNorm, HasNoBiasWhereNoneIsGiven) {
  const Operator fused = [](const std::vector<at::Tensor>& in) {
    return std::vector{ops::layer_norm(in[0], in[1], {}, kEps)};
  };
  const Operator reference = [](const std::vector<at::Tensor>& in) {
    return std::vector{ops::composite::layer_norm(in[0], in[1], {}, kEps)};
  };
  expect_matches(fused, reference, {sample({4, 33}, 1), sample({33}, 2)},
                 at::kFloat, kFp32);
}

// The mean is a thousand times the deviation.
TEST(LayerNorm, DoesNotCancelFarFromZero) {
  std::vector<at::Tensor> in = inputs(256);
  in[0] = (in[0] + 1000).to(at::kHalf).to(at::kFloat);
  expect_close(
      kFusedLayerNorm(in)[0],
      kReferenceLayerNorm({in[0].to(at::kDouble), in[1].to(at::kDouble),
                           in[2].to(at::kDouble)})[0],
      {1e-4, 1e-4}, "output");
}

TEST(LayerNorm, TakesInputThatIsNotContiguous) {
  expect_matches(kFusedLayerNorm, kReferenceLayerNorm,
                 {sample({6, 33, 4}, 1).transpose(0, 1),
                  sample({8}, 2).slice(0, 0, 8, 2), sample({4}, 3)},
                 at::kFloat, kFp32);
}

TEST(LayerNorm, SumsGradientsOfParametersOverThreads) {
  const std::vector<at::Tensor> in = {sample({200, 512}, 1), sample({512}, 2),
                                      sample({512}, 3)};
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  expect_matches(kFusedLayerNorm, kReferenceLayerNorm, in, at::kFloat, kFp32);
  const Results once = run_with_gradients(kFusedLayerNorm, in, at::kFloat);
  const Results again = run_with_gradients(kFusedLayerNorm, in, at::kFloat);
  at::set_num_threads(threads);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_TRUE(at::equal(once.gradients[i], again.gradients[i])) << i;
  }
}

const Operator kFusedAddLayerNorm = [](const std::vector<at::Tensor>& in) {
  const auto [sum, normed] =
      ops::add_layer_norm(in[0], in[1], in[2], in[3], kEps);
  return std::vector{sum, normed.value()};
};
const Operator kReferenceAddLayerNorm = [](const std::vector<at::Tensor>& in) {
  const at::Tensor sum = in[0] + in[1];
  return std::vector{sum, ops::composite::layer_norm(sum, in[2], in[3], kEps)};
};

std::vector<at::Tensor> sum_inputs(at::IntArrayRef shape,
                                   at::ScalarType dtype = at::kFloat) {
  const int64_t width = shape.back();
  return {sample(shape, 1, dtype), sample(shape, 2, dtype),
          sample({width}, 3, dtype), sample({width}, 4, dtype)};
}

TEST(AddLayerNorm, MatchesTheCompositeInFp64) {
  for (const int64_t width : {3, 7, 64, 331}) {
    expect_matches(kFusedAddLayerNorm, kReferenceAddLayerNorm,
                   sum_inputs({3, 5, width}), at::kFloat, kFp32);
  }
}

TEST(AddLayerNorm, IsTheNormOfTheRoundedSum) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::vector<at::Tensor> in = sum_inputs({999, 120}, dtype);
    const std::vector<at::Tensor> got = kFusedAddLayerNorm(in);
    EXPECT_TRUE(at::equal(got[0], in[0] + in[1]));
    EXPECT_TRUE(at::equal(got[1], ops::layer_norm(got[0], in[2], in[3], kEps)));
  }
}

// The two gradients are added in fp32, and rounded once.
TEST(AddLayerNorm, WithoutABranchTakesTheGradientOfTheStream) {
  const Operator fused = [](const std::vector<at::Tensor>& in) {
    const auto [stream, normed] =
        ops::add_layer_norm(in[0], {}, in[1], in[2], kEps);
    EXPECT_TRUE(at::equal(stream, in[0]));
    return std::vector{stream, normed.value()};
  };
  const Operator reference = [](const std::vector<at::Tensor>& in) {
    return std::vector{in[0] * 1,
                       ops::composite::layer_norm(in[0], in[1], in[2], kEps)};
  };
  expect_matches(fused, reference, inputs(120), at::kFloat, kFp32);
  expect_matches(fused, reference, inputs(120), at::kBFloat16,
                 kBf16RoundedOnce);
}

TEST(AddLayerNorm, TakesTheGradientOfEitherResultAlone) {
  for (const int used : {0, 1}) {
    const auto one_of = [used](const Operator& op) -> Operator {
      return [op, used](const std::vector<at::Tensor>& in) {
        // The parameters take part, so that they have gradients.
        return std::vector{op(in)[used] + 0 * in[2].sum() + 0 * in[3].sum()};
      };
    };
    expect_matches(one_of(kFusedAddLayerNorm), one_of(kReferenceAddLayerNorm),
                   sum_inputs({4, 24}), at::kFloat, kFp32);
  }
}

TEST(AddLayerNorm, ComputedAgainHasTheGradientsOfOneThatIsKept) {
  const auto projected = [](auto norm) -> Operator {
    return [norm](const std::vector<at::Tensor>& in) {
      const auto [sum, normed] = norm(in[0], in[1], in[2], in[3], kEps);
      return std::vector{sum, ops::linear(normed, in[4])};
    };
  };
  std::vector<at::Tensor> in = sum_inputs({9, 24});
  in.push_back(sample({5, 24}, 5));
  const Results kept =
      run_with_gradients(projected(ops::add_layer_norm), in, at::kFloat);
  const Results again = run_with_gradients(
      projected(ops::recomputed_add_layer_norm), in, at::kFloat);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
  }
}

TEST(LayerNorm, NamesShapesThatDoNotFit) {
  const at::Tensor x = at::ones({2, 4});
  EXPECT_VALUE_ERROR(ops::layer_norm(x, at::ones({3}), {}, kEps),
                     "weight has shape [3] but x [2, 4]");
  EXPECT_VALUE_ERROR(ops::layer_norm(x, at::ones({4}), at::ones({1}), kEps),
                     "bias has shape [1] but x [2, 4]");
  EXPECT_VALUE_ERROR(
      ops::add_layer_norm(x, at::ones({2, 1}), at::ones({4}), {}, kEps),
      "stream has shape [2, 4] but branch [2, 1]");
}

}  // namespace
}  // namespace accordion::testing
