// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/machine_rates.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsEach = 0.4;
constexpr std::int64_t kCopyBytes = 128LL << 20;

/// Shortest run of `work`, repeated for a while: what disturbs it only adds.
double shortest_seconds(const std::function<void()>& work) {
  work();  // first touch of memory, kernels chosen
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  auto before = start;
  while (std::chrono::duration<double>(before - start).count() < kSecondsEach) {
    work();
    const auto after = Clock::now();
    best =
        std::min(best, std::chrono::duration<double>(after - before).count());
    before = after;
  }
  return best;
}

double matmul_flops(c10::ScalarType computed) {
  // [Note: matmuls in fp16]
  const auto dtype = computed == at::kHalf ? at::kFloat : computed;
  const at::Tensor a = at::ones({kMatmulSize, kMatmulSize}, dtype);
  const at::Tensor b = at::ones({kMatmulSize, kMatmulSize}, dtype);
  at::Tensor c = at::empty({kMatmulSize, kMatmulSize}, dtype);
  const double seconds = shortest_seconds([&] { at::mm_out(c, a, b); });
  const auto n = static_cast<double>(kMatmulSize);
  return 2 * n * n * n / seconds;
}

double memory_bytes() {
  const at::Tensor from = at::ones({kCopyBytes}, at::kByte);
  const at::Tensor to = at::empty({kCopyBytes}, at::kByte);
  const double seconds = shortest_seconds([&] { to.copy_(from); });
  return 2 * static_cast<double>(kCopyBytes) / seconds;
}

}  // namespace

MachineRates measure_machine(Communicator& world, c10::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  world.barrier("matmul rate");
  const double flops = matmul_flops(dtype);
  world.barrier("memory bandwidth");
  const double bytes = memory_bytes();
  const auto sums =
      sum_over_ranks(world, std::vector{flops, bytes}, "rates of the machine");
  return {.matmul_flops = sums[0], .memory_bytes = sums[1]};
}

}  // namespace accordion
