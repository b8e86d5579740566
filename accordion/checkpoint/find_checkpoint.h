// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

namespace accordion {

/// The checkpoint that a person means by a path: itself, or the newest complete
/// one of a run folder or of a folder of checkpoints.
///
/// Throws CheckpointError where there is none
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

}  // namespace accordion
