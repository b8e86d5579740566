// SPDX-License-Identifier: BSD-3-Clause
// Steps of a Llama on one CUDA device, sharded over the one rank that there is,
// beside what the device can do at most:
//
//   gpu_benchmark CONFIG.json fp32|bf16 BATCH SEQ_LEN STEPS
//
// prints one line of JSON. benchmarks/peers/torch_cuda.py does the same steps.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <nlohmann/json.hpp>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/models/llama.h"
#include "accordion/module/meta_init.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"

namespace accordion {
namespace {

constexpr int kWarmupSteps = 5;

struct Work {
  LlamaConfig model;
  c10::ScalarType dtype;
  std::int64_t batch;
  std::int64_t seq_len;
  int steps;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Milliseconds of `body` on the device.
double milliseconds(const std::function<void()>& body) {
  c10::cuda::device_synchronize();
  const auto start = std::chrono::steady_clock::now();
  body();
  c10::cuda::device_synchronize();
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

double median_of(int times, const std::function<void()>& body) {
  body();
  std::vector<double> ms;
  for (int i = 0; i < times; ++i) {
    ms.push_back(milliseconds(body));
  }
  return median(ms);
}

/// Products of large matrices, in flop/s.
double matmul_rate(c10::ScalarType dtype) {
  constexpr std::int64_t kSide = 8192;
  const auto options = at::device(at::kCUDA).dtype(dtype);
  const at::Tensor a = at::randn({kSide, kSide}, options);
  const at::Tensor b = at::randn({kSide, kSide}, options);
  at::Tensor c = at::empty({kSide, kSide}, options);
  const double ms = median_of(10, [&] { at::mm_out(c, a, b); });
  return 2.0 * kSide * kSide * kSide / ms * 1e3;
}

/// Bytes read and written a second by a copy.
double memory_rate() {
  const at::Tensor from = at::empty({std::int64_t{1} << 30},
                                    at::device(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  return 2.0 * static_cast<double>(from.nbytes()) /
         median_of(10, [&] { to.copy_(from); }) * 1e3;
}

/// Of matmuls forward and backward, causal attention counted at half.
double flops_of_step(const Work& work) {
  const LlamaConfig& m = work.model;
  const auto tokens = static_cast<double>(work.batch * work.seq_len);
  const double embedding =
      static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  const double attention =
      6.0 * static_cast<double>(m.num_hidden_layers * m.num_attention_heads *
                                m.head_dim * work.seq_len);
  return tokens *
         (6.0 * (static_cast<double>(m.numel()) - embedding) + attention);
}

/// Least time of a step: every product at the rate of large ones, and AdamW,
/// which reads four numbers of fp32 and writes three, at that of copies.
double roofline_ms(const Work& work, double flops, double bytes) {
  return (flops_of_step(work) / flops +
          28.0 * static_cast<double>(work.model.numel()) / bytes) *
         1e3;
}

InitOptions fresh_values(double deviation) {
  return {.seed = 1,
          .initial_value = [=](const std::string&, const at::Tensor& parameter)
              -> std::optional<InitialValue> {
            return parameter.dim() == 1 ? InitRule::constant(1)
                                        : InitRule::normal(0, deviation);
          }};
}

nlohmann::json measure(const Work& work) {
  const DeviceMesh mesh =
      DeviceMesh::connect(Rendezvous{}, {.backend = "nccl"});
  Unit<Llama> net = [&] {
    const MetaInit meta;
    return Unit<Llama>(work.model);
  }();
  FsdpOptions options;
  options.init = fresh_values(work.model.initializer_range);
  options.precision = {.param_dtype = work.dtype, .reduce_dtype = at::kFloat};
  fully_shard(net, mesh, options);
  AdamW optimizer(net, {.lr = 3e-4, .beta2 = 0.95, .weight_decay = 0.1});
  const at::Tensor tokens =
      at::randint(work.model.vocab_size, {work.batch, work.seq_len + 1},
                  at::device(at::kCUDA).dtype(at::kLong));
  const at::Tensor inputs = tokens.narrow(1, 0, work.seq_len).contiguous();
  const at::Tensor targets = tokens.narrow(1, 1, work.seq_len).contiguous();
  const double divisor = static_cast<double>(targets.numel());
  double loss = 0;
  const auto step = [&] {
    const at::Tensor of_step = net(inputs, targets, divisor).loss;
    of_step.backward();
    optimizer.step(clip_coefficient(reduced_grad_norm(net), 1.0));
    optimizer.zero_grad();
    loss = of_step.item<double>();
  };
  std::vector<double> ms;
  for (int i = 0; i < kWarmupSteps + work.steps; ++i) {
    const double of_step = milliseconds(step);
    if (i >= kWarmupSteps) {
      ms.push_back(of_step);
    }
  }
  const auto peak = c10::cuda::CUDACachingAllocator::getDeviceStats(0)
                        .allocated_bytes[0]
                        .peak;
  return {{"step_ms", median(ms)},
          {"loss", loss},
          {"peak_mib", static_cast<double>(peak) / (1 << 20)}};
}

int run(const Work& work) {
  nlohmann::json result = measure(work);
  const double flops = matmul_rate(work.dtype);
  const double bytes = memory_rate();
  const double least = roofline_ms(work, flops, bytes);
  result["parameters"] = work.model.numel();
  result["matmul_tflops"] = flops / 1e12;
  result["memory_gb_s"] = bytes / 1e9;
  result["roofline_ms"] = least;
  result["of_roofline"] = least / result["step_ms"].get<double>();
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace accordion

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: gpu_benchmark CONFIG.json fp32|bf16 BATCH SEQ_LEN "
                 "STEPS\n");
    return 2;
  }
  try {
    return accordion::run(
        {.model = accordion::LlamaConfig::from_file(argv[1]),
         .dtype = std::string(argv[2]) == "bf16" ? at::kBFloat16 : at::kFloat,
         .batch = std::atoll(argv[3]),
         .seq_len = std::atoll(argv[4]),
         .steps = std::atoi(argv[5])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
