// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/operator_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include <ATen/ops/randn.h>

#include "accordion/ops/attention.h"
#include "accordion/ops/linear.h"
#include "accordion/train/metrics.h"

namespace accordion {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLeastCalls = 3;
constexpr double kSetsBytes = 64 << 20;
constexpr std::int64_t kMostSets = 8;

/// Sets of operands of `bytes` each.
std::int64_t num_sets(double bytes) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kSetsBytes / bytes),
                                  1, kMostSets);
}

/// Calls `work(i)` with the number of a set.
double median_seconds(double seconds_each, std::int64_t sets,
                      const std::function<void(std::size_t)>& work) {
  std::vector<double> times;
  work(0);  // first touch of memory, kernels chosen
  const auto start = Clock::now();
  auto before = start;
  for (std::size_t call = 0;
       call < kLeastCalls ||
       std::chrono::duration<double>(before - start).count() < seconds_each;
       ++call) {
    work(call % static_cast<std::size_t>(sets));
    const auto after = Clock::now();
    times.push_back(std::chrono::duration<double>(after - before).count());
    before = after;
  }
  return median(times);
}

/// Of the size of 1, so that nothing computed from it is subnormal in fp16.
at::Tensor leaf(at::IntArrayRef shape, c10::ScalarType dtype) {
  return at::randn(shape).to(dtype).requires_grad_(true);
}

void forget_gradients(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    tensor.mutable_grad() = at::Tensor();
  }
}

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double sum = 0.0;
  for (const at::Tensor& tensor : tensors) {
    sum += static_cast<double>(tensor.nbytes());
  }
  return sum;
}

/// Forward and backward of `op` over leaves of these shapes.
double operator_seconds(
    double seconds_each, const std::vector<std::vector<std::int64_t>>& shapes,
    c10::ScalarType dtype,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& op) {
  const auto make = [&] {
    std::vector<at::Tensor> leaves;
    for (const auto& shape : shapes) {
      leaves.push_back(leaf(shape, dtype));
    }
    return leaves;
  };
  std::vector<std::vector<at::Tensor>> sets = {make()};
  const std::int64_t count = num_sets(bytes_of(sets.front()));
  while (static_cast<std::int64_t>(sets.size()) < count) {
    sets.push_back(make());
  }
  const at::Tensor gradient = op(sets.front()).detach().clone();
  return median_seconds(seconds_each, count, [&](std::size_t set) {
    op(sets[set]).backward(gradient);
    forget_gradients(sets[set]);
  });
}

}  // namespace

c10::ScalarType scalar_type(plan::ComputeType type) {
  if (type == plan::ComputeType::Fp32) {
    return at::kFloat;
  }
  return type == plan::ComputeType::Fp16 ? at::kHalf : at::kBFloat16;
}

double OperatorTimer::linear(std::int64_t rows, std::int64_t inner,
                             std::int64_t columns,
                             c10::ScalarType dtype) const {
  return operator_seconds(seconds_each_, {{rows, inner}, {columns, inner}},
                          dtype, [](const std::vector<at::Tensor>& in) {
                            return ops::linear(in[0], in[1]);
                          });
}

double OperatorTimer::attention(std::int64_t seq_len, std::int64_t heads,
                                std::int64_t head_dim,
                                c10::ScalarType dtype) const {
  const std::vector<std::int64_t> shape = {1, seq_len, heads, head_dim};
  return operator_seconds(seconds_each_, {shape, shape, shape}, dtype,
                          [](const std::vector<at::Tensor>& in) {
                            return ops::causal_attention(in[0], in[1], in[2]);
                          });
}

}  // namespace accordion
