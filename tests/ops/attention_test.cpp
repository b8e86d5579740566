// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/attention.h"

#include "accordion/ops/composite.h"
#include "accordion/ops/product.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

const Operator kFused = [](const std::vector<at::Tensor>& in) {
  return std::vector{ops::causal_attention(in[0], in[1], in[2])};
};
const Operator kReference = [](const std::vector<at::Tensor>& in) {
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

/// One position; one tile; a tile and a bit, odd; whole tiles; grouped heads.
constexpr Shape kShapes[] = {{1, 1, 1, 1, 2},
                             {2, 37, 2, 2, 6},
                             {1, 65, 4, 2, 10},
                             {1, 128, 3, 1, 32},
                             {2, 131, 6, 3, 64}};

TEST(CausalAttention, MatchesTheCompositeInFp64) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.seq_len);
    expect_matches(kFused, kReference, operands(shape, at::kFloat), at::kFloat,
                   {1e-5, 3e-6});
  }
}

// The result rounds weights and itself: 2 roundings. Gradients round weights,
// the result (in delta), their own factor and themselves: 4. Roundings are
// independent, so over a whole tensor half of their worst case is plenty.
TEST(CausalAttention, RoundsAFewTimesInBf16) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.seq_len);
    const auto inputs = operands(shape, at::kBFloat16);
    const Results got = run_with_gradients(kFused, inputs, at::kBFloat16);
    const Results expected =
        run_with_gradients(kReference, inputs, at::kDouble);
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
    expect_matches(kFused, kReference, operands(shape, at::kHalf), at::kHalf,
                   kFp16RoundedOnce);
  }
}

TEST(CausalAttention, TakesInputThatIsNotContiguous) {
  auto inputs = operands({1, 40, 4, 4, 8}, at::kFloat);
  for (at::Tensor& input : inputs) {
    input = input.transpose(1, 2).contiguous().transpose(1, 2);
  }
  expect_matches(kFused, kReference, inputs, at::kFloat, {1e-5, 3e-6});
}

TEST(CausalAttention, LaterPositionsDoNotReachBack) {
  auto inputs = operands({1, 100, 2, 2, 16}, at::kFloat);
  const at::Tensor before = kFused(inputs)[0].clone();
  for (at::Tensor& input : inputs) {
    input.narrow(1, 70, 30).add_(1);
  }
  const at::Tensor after = kFused(inputs)[0];
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 70), after.narrow(1, 0, 70)));
  EXPECT_FALSE(at::equal(before, after));
}

TEST(CausalAttention, DoesNotDependOnTheNumberOfThreads) {
  const auto inputs = operands({2, 131, 6, 3, 64}, at::kFloat);
  const Results one = run_with_gradients(kFused, inputs, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const Results four = run_with_gradients(kFused, inputs, at::kFloat);
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
