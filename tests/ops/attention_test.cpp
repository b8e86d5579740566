// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/attention.h"

#include "accordion/ops/composite.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/product.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

const Operator kFusedAttention = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::causal_attention(in[0], in[1], in[2])};
};
const Operator kReferenceAttention = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::composite::causal_attention(in[0], in[1], in[2])};
};

struct Shape {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
};

std::vector<at::Tensor> operands(const Shape& s, at::ScalarType dtype) {
  return {sample({s.batch, s.seq_len, s.heads, s.head_dim}, 1, dtype),
          sample({s.batch, s.seq_len, s.kv_heads, s.head_dim}, 2, dtype),
          sample({s.batch, s.seq_len, s.kv_heads, s.head_dim}, 3, dtype)};
}

/// One position; one tile; a tile and a bit, odd; whole tiles; heads of an odd
/// size, and large ones; grouped heads.
constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 2},  {2, 37, 2, 2, 6},   {1, 65, 4, 2, 10}, {1, 128, 3, 1, 32},
    {1, 66, 2, 1, 7}, {1, 70, 2, 1, 256}, {2, 131, 6, 3, 64}};

TEST(CausalAttention, MatchesTheCompositeInFp64) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.seq_len);
    expect_matches(kFusedAttention, kReferenceAttention,
                   operands(shape, at::kFloat), at::kFloat, {1e-5, 3e-6});
  }
}

// The result rounds weights and itself: 2 roundings. Gradients round weights,
// the result (in delta), their own factor and themselves: 4. Roundings are
// independent, so over a whole tensor half of their worst case is plenty.
TEST(CausalAttention, RoundsAFewTimesInBf16) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.seq_len);
    const auto inputs = operands(shape, at::kBFloat16);
    const Results got =
        run_with_gradients(kFusedAttention, inputs, at::kBFloat16);
    const Results expected =
        run_with_gradients(kReferenceAttention, inputs, at::kDouble);
    expect_norm_close(got.outputs[0], expected.outputs[0], 1 * kBf16Rounding,
                      "output");
    for (size_t i = 0; i < 3 && shape.seq_len > 1; ++i) {
      expect_norm_close(got.gradients[i], expected.gradients[i],
                        2 * kBf16Rounding, "gradient " + std::to_string(i));
    }
  }
}

TEST(CausalAttention, RoundsOnceInFp16) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.seq_len);
    expect_matches(kFusedAttention, kReferenceAttention,
                   operands(shape, at::kHalf), at::kHalf, kFp16RoundedOnce);
  }
}

TEST(CausalAttention, TakesInputThatIsNotContiguous) {
  auto inputs = operands({1, 40, 4, 4, 8}, at::kFloat);
  for (at::Tensor& input : inputs) {
    input = input.transpose(1, 2).contiguous().transpose(1, 2);
  }
  expect_matches(kFusedAttention, kReferenceAttention, inputs, at::kFloat,
                 {1e-5, 3e-6});
}

TEST(CausalAttention, LaterPositionsDoNotReachBack) {
  auto inputs = operands({1, 100, 2, 2, 16}, at::kFloat);
  const at::Tensor before = kFusedAttention(inputs)[0].clone();
  for (at::Tensor& input : inputs) {
    input.narrow(1, 70, 30).add_(1);
  }
  const at::Tensor after = kFusedAttention(inputs)[0];
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 70), after.narrow(1, 0, 70)));
  EXPECT_FALSE(at::equal(before, after));
}

/// Written out with a mask of all pairs.
Operator masked(int64_t window) {
  return [window](const std::vector<at::Tensor>& in) {
    const int64_t group = in[0].size(2) / in[1].size(2);
    const at::Tensor q = in[0].transpose(1, 2);
    const at::Tensor k = in[1].repeat_interleave(group, 2).transpose(1, 2);
    const at::Tensor v = in[2].repeat_interleave(group, 2).transpose(1, 2);
    const at::Tensor positions = at::arange(q.size(2));
    const at::Tensor distance = positions.unsqueeze(1) - positions;
    const at::Tensor scores = q.matmul(k.transpose(-1, -2)) /
                              std::sqrt(static_cast<double>(q.size(3)));
    const at::Tensor hidden = distance.lt(0) | distance.ge(window);
    return std::vector{scores.masked_fill(hidden, -INFINITY)
                           .softmax(-1)
                           .matmul(v)
                           .transpose(1, 2)};
  };
}

Operator windowed(int64_t window) {
  return [window](const std::vector<at::Tensor>& in) {
    return std::vector{ops::causal_attention(in[0], in[1], in[2], window)};
  };
}

// Within a tile; just more; tiles and a bit; one less than all, all, more.
constexpr int64_t kWindows[] = {2, 40, 65, 130, 199, 200, 201};
constexpr Shape kWindowed{2, 200, 4, 2, 16};

TEST(WindowedAttention, MatchesAMaskInFp64) {
  for (const int64_t window : kWindows) {
    SCOPED_TRACE(window);
    expect_matches(windowed(window), masked(window),
                   operands(kWindowed, at::kFloat), at::kFloat, {1e-5, 3e-6});
  }
}

TEST(WindowedAttention, MatchesAMaskInFp64OnOddShapes) {
  for (const Shape& shape :
       {Shape{1, 131, 3, 1, 7}, Shape{1, 67, 2, 2, 80}, Shape{1, 1, 1, 1, 3}}) {
    expect_matches(windowed(9), masked(9), operands(shape, at::kFloat),
                   at::kFloat, {1e-5, 3e-6});
  }
}

TEST(WindowedAttention, RoundsAFewTimesInBf16) {
  for (const int64_t window : kWindows) {
    SCOPED_TRACE(window);
    const auto inputs = operands(kWindowed, at::kBFloat16);
    const Results got =
        run_with_gradients(windowed(window), inputs, at::kBFloat16);
    const Results expected =
        run_with_gradients(masked(window), inputs, at::kDouble);
    expect_norm_close(got.outputs[0], expected.outputs[0], 1 * kBf16Rounding,
                      "output");
    for (size_t i = 0; i < 3; ++i) {
      expect_norm_close(got.gradients[i], expected.gradients[i],
                        2 * kBf16Rounding, "gradient " + std::to_string(i));
    }
  }
}

TEST(WindowedAttention, CompositeMatchesAMask) {
  for (const int64_t window : kWindows) {
    SCOPED_TRACE(window);
    const Operator composite = [window](const std::vector<at::Tensor>& in) {
      return std::vector{
          ops::composite::causal_attention(in[0], in[1], in[2], window)};
    };
    expect_matches(composite, masked(window), operands(kWindowed, at::kDouble),
                   at::kDouble, {1e-9, 1e-9});
  }
}

// The weight is 1 whatever the scores.
TEST(WindowedAttention, OfOnePositionIsItsValue) {
  const Shape shape{2, 70, 2, 2, 16};
  const auto inputs = operands(shape, at::kFloat);
  const Results got = run_with_gradients(windowed(1), inputs, at::kFloat);
  EXPECT_TRUE(at::allclose(got.outputs[0], inputs[2], 1e-6, 1e-6));
  EXPECT_LT(got.gradients[0].abs().max().item<float>(), 1e-5);
  EXPECT_LT(got.gradients[1].abs().max().item<float>(), 1e-5);
}

// Longer than what is tiled without a window.
TEST(WindowedAttention, TakesLongSequences) {
  const Shape shape{1, 2'200, 2, 1, 8};
  expect_matches(windowed(33), masked(33), operands(shape, at::kFloat),
                 at::kFloat, {1e-5, 3e-6});
}

TEST(WindowedAttention, ComputedAgainHasTheGradientsOfOneThatIsKept) {
  const auto projected = [](bool again) -> Operator {
    return [again](const std::vector<at::Tensor>& in) {
      const ops::Operand attended =
          again
              ? ops::recomputed_attention(in[0], in[1], in[2], 50)
              : ops::Operand(
                    ops::causal_attention(in[0], in[1], in[2], 50).flatten(2));
      return std::vector{ops::linear(attended, in[3])};
    };
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    auto inputs = operands(kWindowed, dtype);
    inputs.push_back(sample({5, 64}, 4, dtype));
    const Results kept = run_with_gradients(projected(false), inputs, dtype);
    const Results again = run_with_gradients(projected(true), inputs, dtype);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
    }
  }
}

TEST(WindowedAttention, NamesAWindowThatHidesEverything) {
  const at::Tensor q = at::ones({1, 4, 2, 8});
  EXPECT_VALUE_ERROR(ops::causal_attention(q, q, q, 0), "window is 0");
}

TEST(CausalAttention, DoesNotDependOnTheNumberOfThreads) {
  const auto inputs = operands({2, 131, 6, 3, 64}, at::kFloat);
  const Results one = run_with_gradients(kFusedAttention, inputs, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const Results four = run_with_gradients(kFusedAttention, inputs, at::kFloat);
  at::set_num_threads(threads);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(one.gradients[i], four.gradients[i]));
  }
}

TEST(CausalAttention, NamesShapesThatDoNotFit) {
  const at::Tensor q = at::ones({1, 4, 3, 8});
  const at::Tensor k = at::ones({1, 4, 2, 8});
  EXPECT_VALUE_ERROR(ops::causal_attention(q, k, k),
                     "q, k and v have shapes [1, 4, 3, 8], [1, 4, 2, 8]");
}

TEST(Product, ReportsWhichDtypesWork) {
  EXPECT_TRUE(ops::detail::can_multiply(at::kFloat));
  EXPECT_FALSE(ops::detail::can_multiply(at::kDouble));
}

}  // namespace
}  // namespace accordion::testing
