// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accordion/comm/rendezvous.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/models/llama_config.h"
#include "accordion/plan/plan.h"
#include "accordion/schedule/memory_by_kind.h"
#include "accordion/train/machine_rates.h"
#include "accordion/train/memory_use.h"
#include "accordion/train/train_config.h"

namespace accordion {

struct BenchOptions {
  std::int64_t steps = 20;  ///< that are measured, at least 1
  /// Of which calibrate says what it can do; null: no prediction.
  const plan::Cluster* cluster = nullptr;
};

/// Steps before those that are measured: the first records the schedule, the
/// next ones fill caches.
inline constexpr std::int64_t kBenchWarmupSteps = 3;

/// What the steps of a configuration cost. Times of a step are means over
/// ranks.
struct BenchResult {
  std::string model;  ///< file of its configuration
  std::int64_t parameters = 0;
  double flops_per_token = 0.0;
  std::string strategy;
  std::string param_dtype;
  std::string backend;
  int world_size = 1;
  int threads = 1;  ///< of a rank
  std::int64_t tokens_per_step = 0;

  std::vector<double> step_ms;  ///< of each measured step
  std::vector<double> losses;   ///< of all steps, those for warming up included
  std::vector<double> grad_norms;
  StepBreakdown breakdown;        ///< mean of the measured steps
  double page_faults = 0.0;       ///< a step and rank, median of steps
  std::vector<MemoryUse> memory;  ///< peaks, by rank
  MemoryPeak held;                ///< by this rank in its last step
  MemoryByKind estimated;         ///< what estimated_memory says of it
  /// What the planner says of a step; unset without BenchOptions::cluster.
  std::optional<plan::TimePlan> predicted;
  MachineRates machine;
  /// This rank's last step as to_trace_json shows it.
  std::string trace_json;

  [[nodiscard]] double tokens_per_s() const;  ///< at the median step
  /// Part of the measured matmul rate that went into the model.
  [[nodiscard]] double flops_utilization() const;
};

/// Floating-point operations of one token, forward and backward: 6 for each
/// weight that is multiplied, and 12 * layers * width * sequence for attention,
/// masked half included (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
[[nodiscard]] double flops_per_token(const LlamaConfig& model,
                                     std::int64_t seq_len);

/// Takes the first steps of a run, as one of the ranks of `rendezvous`, on its
/// data and with its model, and measures them; then measures the machine. There
/// is no run folder, no validation, no sample.
///
/// Requires  the same arguments on every rank
/// Comm      as train(), and that of measure_machine
/// Throws    as train(); std::invalid_argument where the cluster has another
///           number of ranks
BenchResult bench(const TrainConfig& config, const Rendezvous& rendezvous,
                  const BenchOptions& options = {});

}  // namespace accordion
