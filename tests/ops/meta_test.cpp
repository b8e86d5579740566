// SPDX-License-Identifier: BSD-3-Clause
// On meta an operator makes the tensors that it makes on the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accordion/ops/attention.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/ops/embedding.h"
#include "accordion/ops/gelu.h"
#include "accordion/ops/layer_norm.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/linear_cross_entropy.h"
#include "accordion/ops/rms_norm.h"
#include "accordion/ops/rope.h"
#include "accordion/ops/swiglu.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  Operator op;
};

at::Tensor on_device_of(const at::Tensor& like, const at::Tensor& indices) {
  return indices.to(like.device());
}

std::vector<Case> cases() {
  const at::Tensor tokens = at::arange(6, at::kLong);
  const ops::RopeTable table = ops::make_rope_table(6, 8, 1e4, at::kFloat);
  return {
      {"rms_norm",
       {{3, 6, 16}, {16}},
       [](const auto& in) {
         return std::vector{ops::rms_norm(in[0], in[1], 1e-6)};
       }},
      {"add_layer_norm",
       {{3, 6, 16}, {3, 6, 16}, {16}, {16}},
       [](const auto& in) {
         const auto [sum, normed] =
             ops::add_layer_norm(in[0], in[1], in[2], in[3], 1e-6);
         return std::vector{sum, normed.value()};
       }},
      {"gelu",
       {{3, 6, 16}, {16}},
       [](const auto& in) {
         return std::vector{ops::gelu(in[0], ops::GeluForm::Tanh, in[1])};
       }},
      {"swiglu",
       {{6, 16}, {6, 16}},
       [](const auto& in) { return std::vector{ops::swiglu(in[0], in[1])}; }},
      {"rope",
       {{2, 6, 4, 8}, {2, 6, 2, 8}},
       [table](const auto& in) {
         const auto [q, k] = ops::rope(in[0], in[1], table);
         return std::vector{q, k};
       }},
      {"causal_attention",
       {{2, 6, 4, 8}, {2, 6, 2, 8}, {2, 6, 2, 8}},
       [](const auto& in) {
         return std::vector{ops::causal_attention(in[0], in[1], in[2])};
       }},
      {"windowed attention",
       {{2, 6, 4, 8}, {2, 6, 2, 8}, {2, 6, 2, 8}},
       [](const auto& in) {
         return std::vector{ops::causal_attention(in[0], in[1], in[2], 3)};
       }},
      {"recomputed_attention",
       {{2, 6, 4, 8}, {2, 6, 2, 8}, {2, 6, 2, 8}, {12, 32}},
       [](const auto& in) {
         return std::vector{ops::linear(
             ops::recomputed_attention(in[0], in[1], in[2]), in[3])};
       }},
      {"linear",
       {{2, 6, 16}, {12, 16}, {12}},
       [](const auto& in) {
         return std::vector{ops::linear(in[0], in[1], in[2])};
       }},
      {"cross_entropy",
       {{6, 9}},
       [tokens](const auto& in) {
         return std::vector{
             ops::cross_entropy(in[0], on_device_of(in[0], tokens), 6).loss};
       }},
      {"linear_cross_entropy",
       {{6, 16}, {9, 16}},
       [tokens](const auto& in) {
         return std::vector{ops::linear_cross_entropy(
                                in[0], in[1], on_device_of(in[0], tokens), 6, 4)
                                .loss};
       }},
      {"embedding",
       {{9, 16}},
       [tokens](const auto& in) {
         return std::vector{ops::embedding(in[0], on_device_of(in[0], tokens))};
       }},
  };
}

/// Results, then gradients.
std::vector<at::Tensor> run(const Case& of, at::ScalarType dtype,
                            c10::Device device) {
  std::vector<at::Tensor> inputs;
  for (const auto& shape : of.shapes) {
    inputs.push_back(at::ones(shape, at::TensorOptions(dtype).device(device))
                         .requires_grad_(true));
  }
  std::vector<at::Tensor> results = of.op(inputs);
  at::Tensor sum;
  for (const at::Tensor& result : results) {
    const at::Tensor part = result.to(at::kFloat).sum();
    sum = sum.defined() ? sum + part : part;
  }
  sum.backward();
  for (const at::Tensor& input : inputs) {
    results.push_back(input.grad());
  }
  return results;
}

TEST(OperatorsOnMeta, MakeTheTensorsOfTheCpu) {
  for (const Case& of : cases()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto there = run(of, dtype, at::kMeta);
      const auto here = run(of, dtype, at::kCPU);
      ASSERT_EQ(there.size(), here.size());
      for (std::size_t i = 0; i < here.size(); ++i) {
        const std::string what = of.name + " in " + c10::toString(dtype) +
                                 ", tensor " + std::to_string(i);
        ASSERT_TRUE(there[i].defined()) << what;
        EXPECT_TRUE(there[i].is_meta()) << what;
        EXPECT_EQ(there[i].sizes(), here[i].sizes()) << what;
        EXPECT_EQ(there[i].scalar_type(), here[i].scalar_type()) << what;
      }
    }
  }
}

}  // namespace
}  // namespace accordion::testing
