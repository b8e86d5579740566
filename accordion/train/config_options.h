// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/comm/mesh_grid.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/fsdp/options.h"
#include "accordion/offload/offload_target.h"
#include "accordion/train/lr_schedule.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The parts of a configuration in the words of the libraries that act on them.
FsdpOptions fsdp_options(const TrainConfig& config);
/// Where memory.offload_to says.
OffloadTarget offload_target(const TrainConfig& config);
LrSchedule lr_schedule(const TrainConfig& config);

/// The axes of the run's mesh: "shard", with "replicate" around it where there
/// is more than one replica.
///
/// Throws std::invalid_argument where fsdp.replicas does not divide the ranks,
///        or fsdp.reshard_to_ranks those of a replica
std::vector<MeshAxis> mesh_axes(const TrainConfig& config,
                                const Rendezvous& rendezvous);

/// Compute threads of a rank: train.threads, or one for each of its cores.
int compute_threads(const TrainConfig& config, int cores);

}  // namespace accordion
