// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/gpu_type.h"

#include <array>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "accordion/plan/fitted_constants.h"
#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

constexpr double kGib = 1073741824.0;
// Shah et al. 2024, arXiv:2407.08608: 1.5 to 2.0 times FlashAttention-2 in
// forward and 1.5 to 1.75 in backward on an H100, cuDNN alike.
constexpr double kSpecializedGain = 1.6;

/// What the fit gave for a generation; the types of one generation differ in
/// memory and power only.
GpuType with_rates(GpuType gpu, const FittedGpu& fitted) {
  gpu.gemm_efficiency = fitted.gemm_efficiency;
  gpu.gemm_8bit_efficiency = fitted.gemm_8bit_efficiency;
  gpu.memory_efficiency = fitted.memory_efficiency;
  gpu.gemm_fill_s = fitted.gemm_fill_s;
  gpu.attention_efficiency = fitted.attention_efficiency;
  gpu.speed_spread = fitted_constants().speed_spread;
  gpu.collective_share = fitted_constants().collective_share;
  return gpu;
}

// NVIDIA V100 datasheet (January 2020): SXM2, 125 TFLOPS on tensor cores, 15.7
// in fp32, 32 GB at 900 GB/s, 300 W; whitepaper WP-08608: 80 SMs, 1530 MHz.
GpuType v100() {
  return {.name = "V100-32GB",
          .peak_16bit_flops = 125e12,
          .peak_32bit_flops = 15.7e12,
          .memory_bytes = 32 * kGib,
          .memory_bytes_per_s = 900e9,
          .num_multiprocessors = 80,
          .clock_hz = 1.53e9,
          .link_domain = 8,
          .inside = "NVLink2",
          .between = "IB-100",
          .power_w = 300,
          .reference_power_w = 300};
}

// NVIDIA A100 datasheet (2021): SXM4, 312 TFLOPS bf16, 156 TF32, 400 W, 40 GB
// at 1,555 GB/s or 80 GB at 2,039 GB/s; GA100 whitepaper: 108 SMs, 1410 MHz.
GpuType a100(std::string name, double gib, double bytes_per_s) {
  return {.name = std::move(name),
          .peak_16bit_flops = 312e12,
          .peak_32bit_flops = 156e12,
          .memory_bytes = gib * kGib,
          .memory_bytes_per_s = bytes_per_s,
          .num_multiprocessors = 108,
          .clock_hz = 1.41e9,
          .link_domain = 8,
          .inside = "NVLink3",
          .between = "IB-200",
          .power_w = 400,
          .reference_power_w = 400};
}

// NVIDIA H100 datasheet (2023): SXM5, 1,979 TFLOPS bf16 and 3,958 fp8, both
// with sparsity (half without), 80 GB at 3.35 TB/s, 700 W; H200 datasheet
// (2024): 141 GB at 4.8 TB/s; GH100 whitepaper: 132 SMs, 1830 MHz under load.
GpuType h100(std::string name, double gib, double bytes_per_s, double power) {
  return {.name = std::move(name),
          .peak_16bit_flops = 989e12,
          .peak_8bit_flops = 1979e12,
          .peak_32bit_flops = 494.7e12,
          .memory_bytes = gib * kGib,
          .memory_bytes_per_s = bytes_per_s,
          .num_multiprocessors = 132,
          .clock_hz = 1.83e9,
          .link_domain = 8,
          .inside = "NVLink4",
          .between = "IB-400",
          .power_w = power,
          .reference_power_w = 700,
          .specialized_attention_gain = kSpecializedGain};
}

// NVIDIA Blackwell datasheets (2024): HGX B200 36 PFLOPS fp16 with sparsity for
// 8, GB200 NVL72 360 and GB300 NVL72 360 for 72 (half without; fp8 twice),
// 8 TB/s; 180, 186 and 288 GB; 1,000, 1,200 and 1,400 W; 148 SMs.
GpuType blackwell(std::string name, double flops, double gb, int link_domain,
                  double power) {
  return {.name = std::move(name),
          .peak_16bit_flops = flops,
          .peak_8bit_flops = 2 * flops,
          .peak_32bit_flops = flops / 2,
          .memory_bytes = gb * 1e9,
          .memory_bytes_per_s = 8e12,
          .num_multiprocessors = 148,
          .clock_hz = 1.85e9,
          .link_domain = link_domain,
          .inside = "NVLink5",
          .between = "IB-400",
          .power_w = power,
          .reference_power_w = power,
          .specialized_attention_gain = kSpecializedGain};
}

// NVIDIA Ada whitepaper: GeForce RTX 4090, 165.2 TFLOPS fp16 with fp32 sums
// (330.3 fp8), 82.6 in fp32, 24 GB at 1,008 GB/s, 128 SMs at 2520 MHz, 450 W.
GpuType rtx_4090() {
  return {.name = "RTX-4090",
          .peak_16bit_flops = 165.2e12,
          .peak_8bit_flops = 330.3e12,
          .peak_32bit_flops = 82.6e12,
          .memory_bytes = 24 * kGib,
          .memory_bytes_per_s = 1008e9,
          .num_multiprocessors = 128,
          .clock_hz = 2.52e9,
          .link_domain = 8,
          .inside = "PCIe4",
          .between = "Ethernet-100",
          .power_w = 450,
          .reference_power_w = 450};
}

// NVIDIA RTX A6000 datasheet (2021): 309.7 TFLOPS with sparsity (half without),
// 38.7 in fp32, 48 GB at 768 GB/s, 300 W; GA102 whitepaper: 84 SMs, 1800 MHz.
GpuType rtx_a6000() {
  return {.name = "A6000",
          .peak_16bit_flops = 154.8e12,
          .peak_32bit_flops = 77.4e12,
          .memory_bytes = 48 * kGib,
          .memory_bytes_per_s = 768e9,
          .num_multiprocessors = 84,
          .clock_hz = 1.8e9,
          .link_domain = 8,
          .inside = "PCIe4",
          .between = "Ethernet-100",
          .power_w = 300,
          .reference_power_w = 300};
}

std::vector<GpuType> make_types() {
  const FittedConstants& fitted = fitted_constants();
  return {
      with_rates(v100(), fitted.ampere),
      with_rates(a100("A100-40GB", 40, 1555e9), fitted.ampere),
      with_rates(a100("A100-80GB", 80, 2039e9), fitted.ampere),
      with_rates(h100("H100-80GB", 80, 3350e9, 700), fitted.hopper),
      // Meta's own: pytorch/torchtitan, benchmarks/llama3_h100_202412.
      with_rates(h100("H100-96GB-HBM2e-500W", 96, 2400e9, 500), fitted.hopper),
      with_rates(h100("H200", 141e9 / kGib, 4800e9, 700), fitted.hopper),
      with_rates(blackwell("B200", 2250e12, 180, 8, 1000), fitted.hopper),
      with_rates(blackwell("GB200", 2500e12, 186, 72, 1200), fitted.hopper),
      with_rates(blackwell("GB300", 2500e12, 288, 72, 1400), fitted.hopper),
      with_rates(rtx_4090(), fitted.ampere),
      with_rates(rtx_a6000(), fitted.ampere),
  };
}

/// Other names by which a type goes.
struct Alias {
  std::string_view name;
  std::string_view type;
};
constexpr std::array<Alias, 5> kAliases = {{
    {"V100", "V100-32GB"},
    {"A100", "A100-80GB"},
    {"H100", "H100-80GB"},
    {"RTX-A6000", "A6000"},
    {"4090", "RTX-4090"},
}};

/// Without what does not tell types apart: maker and socket.
std::string plain_name(std::string_view name) {
  std::string result = normalized(name);
  for (const std::string_view part :
       {"nvidia-", "tesla-", "-sxm5", "-sxm4", "-sxm", "-hbm3e", "-hbm3"}) {
    if (const auto at = result.find(part); at != std::string::npos) {
      result.erase(at, part.size());
    }
  }
  return result;
}

}  // namespace

std::span<const GpuType> gpu_types() {
  static const std::vector<GpuType> kTypes = make_types();
  return kTypes;
}

const GpuType& find_gpu(std::string_view name) {
  std::string wanted = plain_name(name);
  std::vector<std::string_view> names;
  std::vector<std::string_view> spellings;
  for (const Alias& alias : kAliases) {
    spellings.push_back(alias.name);
    if (wanted == normalized(alias.name)) {
      wanted = normalized(alias.type);
    }
  }
  for (const GpuType& gpu : gpu_types()) {
    if (normalized(gpu.name) == wanted) {
      return gpu;
    }
    names.push_back(gpu.name);
  }
  spellings.insert(spellings.begin(), names.begin(), names.end());
  fail_unknown(fmt::format("[find_gpu] GPU '{}'", name), name, spellings,
               names);
}

}  // namespace accordion::plan
