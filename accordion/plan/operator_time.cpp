// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/operator_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace accordion::plan {
namespace {

constexpr double kTileRows = 128.0;
constexpr double kTileColumns = 256.0;

double clock_share(const GpuType& gpu) {
  return std::cbrt(gpu.power_w / gpu.reference_power_w);
}

double product_rate(const Operator& op, const OperatorMachine& machine) {
  const GpuType& gpu = machine.gpu;
  if (machine.compute == ComputeType::Fp32) {
    return gpu.peak_32bit_flops * gpu.gemm_efficiency;
  }
  return op.eight_bit ? gpu.peak_8bit_flops * gpu.gemm_8bit_efficiency
                      : gpu.peak_16bit_flops * gpu.gemm_efficiency;
}

double num_tiles(double rows, double columns) {
  return std::ceil(rows / kTileRows) * std::ceil(columns / kTileColumns);
}

/// Nobody cuts a product into parts that leave multiprocessors idle.
double product_time(const Operator& op, const OperatorMachine& machine) {
  const GpuType& gpu = machine.gpu;
  const double multiprocessors = gpu.num_multiprocessors;
  const double filled =
      std::floor(num_tiles(op.rows, op.columns) / multiprocessors);
  const double parts = std::clamp(filled, 1.0, static_cast<double>(op.parts));
  const double waves =
      parts *
      std::ceil(num_tiles(op.rows / parts, op.columns) / multiprocessors);
  const double rate =
      product_rate(op, machine) * clock_share(gpu) / gpu.num_multiprocessors;
  const double tile = 2.0 * kTileRows * kTileColumns * op.inner / rate;
  return std::max(waves * (tile + gpu.gemm_fill_s), memory_time(op.bytes, gpu));
}

/// Exponentials run on units of their own, 16 a clock on a multiprocessor, and
/// not beside the products of the same tile.
double attention_time(const Operator& op, const OperatorMachine& machine) {
  const GpuType& gpu = machine.gpu;
  const double peak = machine.compute == ComputeType::Fp32
                          ? gpu.peak_32bit_flops
                          : gpu.peak_16bit_flops;
  const double gain = machine.stack.specialized_attention
                          ? gpu.specialized_attention_gain
                          : 1.0;
  const double rate = peak * gpu.attention_efficiency *
                      machine.stack.attention_factor * gain * clock_share(gpu);
  const double exponential_rate =
      16.0 * gpu.num_multiprocessors * gpu.clock_hz * clock_share(gpu);
  return std::max(op.flops / rate + op.exponentials / exponential_rate,
                  memory_time(op.bytes, gpu));
}

/// From what was measured on the device; nullopt where nothing like it was.
std::optional<double> measured_time(const Operator& op,
                                    const OperatorMachine& machine) {
  const auto rate = [&](MeasuredKind kind, std::array<double, 3> sizes) {
    return rate_at(machine.gpu.measured, kind, machine.compute, sizes);
  };
  std::optional<double> per_s;
  switch (op.kind) {
    case OperatorKind::Product:
      per_s = rate(MeasuredKind::Product, {op.rows, op.inner, op.columns});
      break;
    case OperatorKind::Attention:
      per_s = rate(MeasuredKind::Attention, {op.columns, op.inner, 1.0});
      break;
    case OperatorKind::Elementwise:
      return std::nullopt;
  }
  return per_s ? std::optional(op.flops / *per_s) : std::nullopt;
}

double time_alone(const Operator& op, const OperatorMachine& machine) {
  if (const auto seconds = measured_time(op, machine)) {
    return *seconds;
  }
  const double launches = op.kernels * machine.stack.launch_s;
  switch (op.kind) {
    case OperatorKind::Product:
      return product_time(op, machine) + launches;
    case OperatorKind::Attention:
      return attention_time(op, machine) + launches;
    case OperatorKind::Elementwise:
      return memory_time(op.bytes, machine.gpu) + launches;
  }
  return launches;
}

}  // namespace

double memory_time(double bytes, const GpuType& gpu) {
  return bytes / (gpu.memory_bytes_per_s * gpu.memory_efficiency);
}

double operator_time(const Operator& op, const OperatorMachine& machine) {
  return time_alone(op, machine) / machine.pace;
}

double total_time(std::span<const Operator> operators,
                  const OperatorMachine& machine) {
  double seconds = 0.0;
  for (const Operator& op : operators) {
    seconds += operator_time(op, machine);
  }
  return seconds;
}

}  // namespace accordion::plan
