// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "accordion/plan/question/launcher_config.h"

namespace accordion::plan {

/// What settings of Hugging Face say: those of `accelerate config` (YAML or
/// JSON, with fsdp_config or deepspeed_config), or arguments of its Trainer
/// (JSON, with fsdp, fsdp_config, batch sizes, optim).
///
/// Throws std::invalid_argument that names the key and what it may be
LauncherConfig accelerate_config(std::string_view text,
                                 std::string_view source);

/// The same of a file. Throws std::runtime_error if it cannot be read.
LauncherConfig accelerate_config_from_file(const std::string& path);

}  // namespace accordion::plan
