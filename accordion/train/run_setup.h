// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/data/tokenizer.h"
#include "accordion/models/llama_config.h"
#include "accordion/train/run_data.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What a rank needs before its first step, apart from the model's weights.
struct RunSetup {
  TrainConfig config;  ///< with train.steps in place of train.epochs
  LlamaConfig model;
  std::unique_ptr<const Tokenizer> tokenizer;
  DeviceMesh mesh;
  RunData data;
};

/// Of this host's cores, those for this rank to compute on: ranks may have been
/// bound to cores of their own, or share all of them.
///
/// Comm  one all-gather of 136 bytes a rank
int own_cores(Communicator& world, const Rendezvous& rendezvous);

/// Checks model, tokenizer and data, sets the threads that ATen computes with,
/// meets the other ranks and opens the data with them.
///
/// Requires  the same configuration on every rank
/// Comm      that of DeviceMesh::connect and open_data_together, one all-gather
/// Throws    std::invalid_argument for what the configuration got wrong,
///           CommError
RunSetup prepare_run(const TrainConfig& config, const Rendezvous& rendezvous);

}  // namespace accordion
