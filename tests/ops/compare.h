// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace accordion::testing {

/// An operator under test: tensors in, tensors out.
using Operator =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Largest distance allowed between a result and the same operator in fp64 on
/// the same (rounded) inputs: relative to the element, plus a share of the
/// largest element, for what cancels.
struct Tolerance {
  double relative;
  double of_largest;
};

/// bf16 has 8 significant bits: rounding to nearest is off by at most 2^-8.
inline constexpr double kBf16Rounding = 1.0 / 256;
/// fp16 has 11.
inline constexpr double kFp16Rounding = 1.0 / 2048;

/// Arithmetic in fp32 over a few hundred terms.
inline constexpr Tolerance kFp32{1e-5, 1e-6};
/// Arithmetic in fp32, result rounded once.
inline constexpr Tolerance kBf16RoundedOnce{1.01 * kBf16Rounding, 1e-5};
inline constexpr Tolerance kFp16RoundedOnce{1.01 * kFp16Rounding, 1e-5};

/// Uniform in [-2, 2], reproducible.
inline at::Tensor sample(at::IntArrayRef shape, uint64_t seed,
                         at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::rand(shape, generator, at::kDouble).sub(0.5).mul(4).to(dtype);
}

inline void expect_close(const at::Tensor& got, const at::Tensor& expected,
                         Tolerance tolerance, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const at::Tensor reference = expected.to(at::kDouble);
  const at::Tensor distance = (got.to(at::kDouble) - reference).abs();
  const at::Tensor bound = reference.abs() * tolerance.relative +
                           reference.abs().max() * tolerance.of_largest + 1e-30;
  const double excess = (distance / bound).max().item<double>();
  EXPECT_LE(excess, 1.0) << what << ": largest distance "
                         << distance.max().item<double>();
}

/// Relative distance of whole tensors, for results whose elements are sums of
/// rounded terms.
inline void expect_norm_close(const at::Tensor& got, const at::Tensor& expected,
                              double relative, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const at::Tensor reference = expected.to(at::kDouble);
  EXPECT_LE((got.to(at::kDouble) - reference).norm().item<double>(),
            relative * reference.norm().item<double>())
      << what;
}

struct Results {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;  ///< of the inputs
};

/// Runs an operator on leaves of `dtype` and sends fixed gradients back.
inline Results run_with_gradients(const Operator& op,
                                  const std::vector<at::Tensor>& inputs,
                                  at::ScalarType dtype) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    // Keeps strides: an operator must take what is not contiguous.
    leaves.push_back(input.detach().to(dtype).requires_grad_());
  }
  Results results;
  results.outputs = op(leaves);
  std::vector<at::Tensor> directions;
  uint64_t seed = 100;
  for (const at::Tensor& output : results.outputs) {
    // Of bf16 values in every dtype, so that all runs get the same.
    directions.push_back(
        sample(output.sizes(), seed++, at::kBFloat16).to(output.scalar_type()));
  }
  results.gradients =
      torch::autograd::grad(results.outputs, leaves, directions);
  return results;
}

/// Holds `op` in `dtype` to `reference` in fp64, outputs and gradients.
inline void expect_matches(const Operator& op, const Operator& reference,
                           std::vector<at::Tensor> inputs, at::ScalarType dtype,
                           Tolerance tolerance) {
  for (at::Tensor& input : inputs) {
    input = input.to(dtype);
  }
  const Results got = run_with_gradients(op, inputs, dtype);
  const Results expected = run_with_gradients(reference, inputs, at::kDouble);
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    EXPECT_EQ(got.outputs[i].scalar_type(), dtype);
    expect_close(got.outputs[i], expected.outputs[i], tolerance,
                 "output " + std::to_string(i));
  }
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    expect_close(got.gradients[i], expected.gradients[i], tolerance,
                 "gradient " + std::to_string(i));
  }
}

/// The message of what `call` throws, "" if nothing.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Passes when `call` throws an Error whose message contains `phrase`.
#define EXPECT_VALUE_ERROR(call, phrase)                                \
  EXPECT_THROW(call, c10::ValueError);                                  \
  EXPECT_NE(accordion::testing::message_of([&] { call; }).find(phrase), \
            std::string::npos)                                          \
      << accordion::testing::message_of([&] { call; })

}  // namespace accordion::testing
