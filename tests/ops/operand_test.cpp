// SPDX-License-Identifier: BSD-3-Clause
// Products whose operands are computed again: the same bits, less memory.
#include "accordion/ops/operand.h"

#include <utility>

#include "accordion/ops/attention.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/rms_norm.h"
#include "accordion/ops/swiglu.h"
#include "tests/ops/compare.h"

namespace accordion {
namespace {

using ops::Operand;
using testing::sample;

at::Tensor leaf(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype) {
  return sample(shape, seed, dtype).requires_grad_();
}

/// An operator of some leaves, kept or recomputed, and products of its result.
struct OperandCase {
  std::string name;
  std::vector<std::vector<int64_t>> inputs;
  std::function<Operand(const std::vector<at::Tensor>&)> kept;
  std::function<Operand(const std::vector<at::Tensor>&)> recomputed;
  int64_t width;  // of the result
};

std::vector<OperandCase> cases() {
  return {
      {"rms_norm",
       {{2, 3, 24}, {24}},
       [](const auto& in) {
         return ops::add_rms_norm(in[0], {}, in[1], 1e-5).normed;
       },
       [](const auto& in) {
         return ops::recomputed_add_rms_norm(in[0], {}, in[1], 1e-5).normed;
       },
       24},
      {"add_rms_norm",
       {{2, 3, 24}, {2, 3, 24}, {24}},
       [](const auto& in) {
         return ops::add_rms_norm(in[0], in[1], in[2], 1e-5).normed;
       },
       [](const auto& in) {
         return ops::recomputed_add_rms_norm(in[0], in[1], in[2], 1e-5).normed;
       },
       24},
      {"swiglu",
       {{2, 3, 24}, {2, 3, 24}},
       [](const auto& in) { return ops::swiglu(in[0], in[1]); },
       [](const auto& in) { return ops::recomputed_swiglu(in[0], in[1]); },
       24},
      {"attention",
       {{2, 5, 4, 8}, {2, 5, 2, 8}, {2, 5, 2, 8}},
       [](const auto& in) {
         return ops::causal_attention(in[0], in[1], in[2]).flatten(2);
       },
       [](const auto& in) {
         return ops::recomputed_attention(in[0], in[1], in[2]);
       },
       32},
  };
}

/// Output and gradients of two products of the operator's result.
std::vector<at::Tensor> run(const OperandCase& c, bool recomputed,
                            at::ScalarType dtype, int backwards = 1) {
  std::vector<at::Tensor> leaves;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    leaves.push_back(leaf(c.inputs[i], i + 1, dtype));
  }
  const at::Tensor first = leaf({16, c.width}, 8, dtype);
  const at::Tensor second = leaf({7, c.width}, 9, dtype);
  const Operand operand = (recomputed ? c.recomputed : c.kept)(leaves);
  const at::Tensor y =
      at::cat({ops::linear(operand, first), ops::linear(operand, second)}, -1);
  for (int i = 0; i < backwards; ++i) {
    (y * sample(y.sizes(), 10, dtype))
        .sum()
        .backward({}, /*retain_graph=*/i + 1 < backwards);
  }
  std::vector<at::Tensor> results{y.detach(), first.grad(), second.grad()};
  for (const at::Tensor& input : leaves) {
    results.push_back(input.grad());
  }
  return results;
}

void expect_equal(const std::vector<at::Tensor>& got,
                  const std::vector<at::Tensor>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], want[i])) << what << ", result " << i;
  }
}

TEST(Operand, RecomputedIsBitForBitAsKept) {
  for (const OperandCase& c : cases()) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const std::string what = c.name + " " + c10::toString(dtype);
      expect_equal(run(c, true, dtype), run(c, false, dtype), what);
    }
  }
}

TEST(Operand, ServesSeveralBackwardsOfOneGraph) {
  for (const OperandCase& c : cases()) {
    expect_equal(run(c, true, at::kFloat, 3), run(c, false, at::kFloat, 3),
                 c.name);
  }
}

/// Whether the result's memory is there after the operand is out of scope.
bool is_kept_by_graph(const OperandCase& c, bool recomputed, bool frozen) {
  std::vector<at::Tensor> leaves;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    leaves.push_back(leaf(c.inputs[i], i + 1, at::kFloat));
  }
  const at::Tensor weight = leaf({16, c.width}, 8, at::kFloat);
  weight.set_requires_grad(!frozen);
  at::Tensor y;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{
      c10::intrusive_ptr<c10::StorageImpl>()};
  {
    const Operand operand = (recomputed ? c.recomputed : c.kept)(leaves);
    storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
        operand.value().storage().getWeakStorageImpl());
    y = ops::linear(operand, weight);
  }
  const bool kept = !storage.expired();
  y.sum().backward();
  EXPECT_TRUE(leaves[0].grad().defined());
  return kept;
}

TEST(Operand, RecomputedLeavesNoResultInTheGraph) {
  for (const OperandCase& c : cases()) {
    EXPECT_TRUE(is_kept_by_graph(c, false, false)) << c.name;
    EXPECT_FALSE(is_kept_by_graph(c, true, false)) << c.name;
    EXPECT_FALSE(is_kept_by_graph(c, true, true)) << c.name << ", frozen";
  }
}

TEST(Recomputation, ComputesOnceForAllUsersAndForgets) {
  int calls = 0;
  const auto shared = c10::make_intrusive<ops::Recomputation>(
      [&](const std::vector<at::Tensor>& from) {
        ++calls;
        return std::vector{from[0] + 1};
      });
  shared->add_user();
  shared->add_user();
  const std::vector<at::Tensor> from = {at::ones({2})};
  for (int backward = 1; backward <= 2; ++backward) {
    const at::Tensor first = shared->results(from)[0];
    const at::Tensor second = shared->results(from)[0];
    EXPECT_TRUE(first.is_same(second));
    EXPECT_EQ(calls, backward);
    EXPECT_EQ(first.use_count(), 2) << "nobody else has it";
  }
}

}  // namespace
}  // namespace accordion
