// SPDX-License-Identifier: BSD-3-Clause
// Times one pass of AdamW over 30 million elements, for each dtype of what it
// stores, on one thread.
//
//   adamw_benchmark
//
// The variants are measured alternately; the median of their repeats is
// printed, in processor time. "memory" is a pass over as many arrays as fp32
// has, which computes next to nothing.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "accordion/ops/kernels/adamw.h"
#include "benchmarks/stream_kernels.h"
#include "benchmarks/timing.h"

namespace {

using accordion::benchmarks::median;
using accordion::benchmarks::processor_ms;
using namespace accordion::kernels;

constexpr std::int64_t kNumel = 30'000'000;
constexpr int kRepeats = 15;

constexpr AdamWStep kStep = {.gradient_scale = 1.0F,
                             .keep = 0.9999F,
                             .first_weight = 0.1F,
                             .second_weight = 0.05F,
                             .beta2 = 0.95F,
                             .step_size = 1e-4F,
                             .root_scale = 1.0F,
                             .eps = 1e-8F};
constexpr AdamWRounding kRounding = {.moments_key = {0x243f6a88, 0x85a308d3},
                                     .parameters_key = {0x13198a2e, 0x03707344},
                                     .first_element = 0};

/// Memory of its own for each operand, all of one value.
template <class Parameter, class Moment>
struct Arrays {
  Arrays() {
    fill(parameters, 1.0F);
    fill(gradients, 0.01F);
    fill(first, 0.01F);
    fill(second, 1e-4F);
  }
  template <class T>
  static void fill(std::vector<T>& values, float value) {
    values.resize(kNumel);
    for (T& each : values) {
      store(each, value);
    }
  }
  AdamWOperands<Parameter, Moment> operands() {
    return {parameters.data(), gradients.data(), first.data(), second.data()};
  }
  std::vector<Parameter> parameters, gradients;
  std::vector<Moment> first, second;
};

struct Variant {
  std::string name;
  int bytes;  // read and written, an element
  std::function<void()> pass;
  std::vector<double> ms = {};
};

}  // namespace

int main() {
  Arrays<float, float> fp32;
  Arrays<float, Bf16> moments;
  Arrays<Bf16, float> parameters;
  Arrays<Bf16, Bf16> bf16;
  const auto nearest = [](auto& arrays) {
    return [&arrays] { adamw(arrays.operands(), kStep, kNumel); };
  };
  const auto stochastic = [](auto& arrays) {
    return [&arrays] { adamw(arrays.operands(), kStep, kNumel, kRounding); };
  };
  std::vector<Bf16> copy(kNumel);
  const auto copying = [&copy](auto& arrays) {
    return [&] {
      auto operands = arrays.operands();
      operands.copy = copy.data();
      adamw(operands, kStep, kNumel);
    };
  };
  const auto memory = [&fp32] {
    accordion::benchmarks::stream_update(fp32.parameters.data(),
                                         fp32.first.data(), fp32.second.data(),
                                         fp32.gradients.data(), kNumel);
  };
  std::vector<Variant> variants = {
      {"memory", 28, memory},
      {"fp32", 28, nearest(fp32)},
      {"fp32, and bf16 copies", 30, copying(fp32)},
      {"bf16 moments, and bf16 copies", 22, copying(moments)},
      {"bf16 moments", 20, nearest(moments)},
      {"bf16 moments, stochastic", 20, stochastic(moments)},
      {"bf16 parameters", 22, nearest(parameters)},
      {"bf16 parameters, stochastic", 22, stochastic(parameters)},
      {"all bf16", 14, nearest(bf16)},
      {"all bf16, stochastic", 14, stochastic(bf16)},
  };
  for (int i = -1; i < kRepeats; ++i) {
    for (Variant& variant : variants) {
      const double ms = processor_ms(variant.pass);
      if (i >= 0) {  // the first of each is the warm-up
        variant.ms.push_back(ms);
      }
    }
  }
  std::printf("%-30s %10s %8s\n", "stored", "ms", "GB/s");
  for (const Variant& variant : variants) {
    const double ms = median(variant.ms);
    std::printf("%-30s %10.1f %8.1f\n", variant.name.c_str(), ms,
                static_cast<double>(variant.bytes) * kNumel / ms * 1e-6);
  }
}
