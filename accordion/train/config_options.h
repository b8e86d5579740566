// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/comm/rendezvous.h"
#include "accordion/fsdp/options.h"
#include "accordion/train/lr_schedule.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The parts of a configuration in the words of the libraries that act on them.
FsdpOptions fsdp_options(const TrainConfig& config);
LrSchedule lr_schedule(const TrainConfig& config);

/// Compute threads of a rank: train.threads, or an equal part of the cores that
/// this process may use, at least 1.
int compute_threads(const TrainConfig& config, const Rendezvous& rendezvous);

}  // namespace accordion
