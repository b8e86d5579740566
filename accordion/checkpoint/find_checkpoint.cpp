// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/find_checkpoint.h"

#include <system_error>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"
#include "accordion/checkpoint/checkpoint_folder.h"

namespace accordion {

std::filesystem::path find_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(index_file(path), ignored)) {
    return path;
  }
  const auto found = checkpoints_below(path);
  if (!found.empty()) {
    return found.back().path;
  }
  throw CheckpointError(fmt::format(
      "[checkpoint] '{}' is no checkpoint, and holds no complete one. Give a "
      "run folder, or a checkpoint such as RUN/checkpoints/step-00001000.",
      path.string()));
}

}  // namespace accordion
