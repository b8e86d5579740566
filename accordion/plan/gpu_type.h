// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/plan/measured_rates.h"

namespace accordion::plan {

/// A type of accelerator: its datasheet, and how much of it programs get.
///
/// Units  FLOP/s without structured sparsity, bytes/s, bytes, watts
struct GpuType {
  std::string name;  ///< "H100", "A100-40GB", … as parse_cluster() takes it
  // From the datasheet, cited at the definition.
  double peak_16bit_flops = 0.0;  ///< bf16 and fp16 on matrix units
  double peak_8bit_flops = 0.0;   ///< fp8; 0: has none
  double peak_32bit_flops = 0.0;  ///< TF32, else fp32
  double memory_bytes = 0.0;
  double memory_bytes_per_s = 0.0;
  int num_multiprocessors = 0;
  double clock_hz = 0.0;  ///< boost
  /// Devices that NVLink joins directly: 1 for none, 8 for a host, 72 for a
  /// rack.
  int link_domain = 1;
  std::string inside;    ///< LinkType between them, as machines come
  std::string between;   ///< LinkType of the network that machines come with
  double power_w = 0.0;  ///< what the board may draw
  /// The board's power where `gemm_efficiency` was measured; another limit
  /// moves the clock with its cube root ([Note: power]).
  double reference_power_w = 0.0;
  /// How much faster attention is that overlaps its loads, products and
  /// exponentials (SoftwareStack::specialized_attention).
  double specialized_attention_gain = 1.0;
  // Fitted, see docs/planner_accuracy.md.
  /// Of the peak that a large matrix product gets: the clock under load, and
  /// what the tensor cores wait for.
  double gemm_efficiency = 0.0;
  /// The same of 8-bit products.
  double gemm_8bit_efficiency = 0.0;
  /// Of the memory's rate that a kernel over elements gets.
  double memory_efficiency = 0.0;
  /// Seconds that each tile of a product takes besides its arithmetic: until
  /// its first operands are there and its results are written.
  double gemm_fill_s = 0.0;
  /// Of the peak that forward and backward of fused attention get, counting
  /// only what a causal mask leaves.
  double attention_efficiency = 0.0;

  /// Spread of the speeds of devices of one type (silicon, cooling), as the
  /// standard deviation over the mean; a step waits for the slowest.
  double speed_spread = 0.0;
  /// Of computation's rate that is lost while a collective is under way, which
  /// takes multiprocessors and memory traffic of its own.
  double collective_share = 0.0;

  /// From a calibration; where there are any they stand in the place of peaks
  /// and efficiencies.
  std::vector<MeasuredRate> measured = {};

  bool operator==(const GpuType&) const = default;
};

/// All that are known.
[[nodiscard]] std::span<const GpuType> gpu_types();

/// By name, whatever its case, maker or socket: "NVIDIA H100-80GB-SXM5".
///
/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] const GpuType& find_gpu(std::string_view name);

}  // namespace accordion::plan
