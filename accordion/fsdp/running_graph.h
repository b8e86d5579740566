// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/function.h>

namespace accordion {

/// The innermost backward that this thread is inside of: a checkpointed call
/// runs one of its own inside another. kNoBackward outside of any.
[[nodiscard]] int running_backward();
inline constexpr int kNoBackward = -1;

/// Whether this thread is inside a backward.
[[nodiscard]] bool inside_backward();

/// Whether the backward that this thread is in runs `node`, sooner or later.
/// False outside of backward.
[[nodiscard]] bool backward_runs(const torch::autograd::Node& node);

}  // namespace accordion
