// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion::plan {

/// Rates of one generation of GPUs: the fields of GpuType of these names.
struct FittedGpu {
  double gemm_efficiency;
  double gemm_8bit_efficiency;
  double memory_efficiency;
  double gemm_fill_s;
  double attention_efficiency;
};

/// Every number of the planner that is no datasheet's and no count, in one
/// place. Each belongs to a generation of GPUs, a kind of link or a software
/// stack, and none to a model or a run.
///
/// The definitions say what each means and what it was taken from;
/// docs/planner_accuracy.md how well predictions hold with them.
struct FittedConstants {
  FittedGpu ampere;           ///< and Volta, Ada
  FittedGpu hopper;           ///< and Blackwell
  double nvlink_efficiency;   ///< LinkType::efficiency inside a host
  double network_efficiency;  ///< the same between hosts
  double attention_triton;    ///< SoftwareStack::attention_factor, llm-foundry
  double launch_s;            ///< SoftwareStack::launch_s
  double allocator_overhead;  ///< SoftwareStack::allocator_overhead, PyTorch
  double speed_spread;        ///< GpuType::speed_spread
  double collective_share;    ///< GpuType::collective_share
};

[[nodiscard]] const FittedConstants& fitted_constants();

}  // namespace accordion::plan
