// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "accordion/plan/model_shape.h"
#include "accordion/plan/question/launcher_config.h"

namespace accordion::plan {

/// What a ds_config.json says: ZeRO stage, offloading, buckets, batch sizes,
/// types, optimizer, tensor ranks.
///
/// Buckets are in elements there and in units here: what stage 3 prefetches
/// becomes as many layers of `model` as fit whole.
///
/// Throws std::invalid_argument that names the key and what it may be
LauncherConfig deepspeed_config(std::string_view text, std::string_view source,
                                const ModelShape& model, int num_gpus);

/// The same of a file. Throws std::runtime_error if it cannot be read.
LauncherConfig deepspeed_config_from_file(const std::string& path,
                                          const ModelShape& model,
                                          int num_gpus);

}  // namespace accordion::plan
