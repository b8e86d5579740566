// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/comm/device_mesh.h"
#include "accordion/models/llama_config.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// Where the time of a training step went, and what its collectives moved.
///
/// Units  seconds, means over ranks; bytes of full tensors in the dtype of
///        computation, as CommCounters
struct StepRates {
  double compute = 0.0;
  double gather = 0.0;
  double reduce = 0.0;
  double optimizer = 0.0;
  double gathered_bytes = 0.0;
  double reduced_bytes = 0.0;
};

/// Takes some steps of a fresh model over made-up tokens: medians of about
/// `seconds` worth of steps, of at least three, behind two that record the
/// schedule and fill caches. `config` says strategy, dtype and batch.
///
/// Comm    as training
/// Returns the same on every rank
StepRates measure_steps(const TrainConfig& config, const LlamaConfig& model,
                        const DeviceMesh& mesh, double seconds);

}  // namespace accordion
