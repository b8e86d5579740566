// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/fsdp/step_trace.h"

namespace accordion {

/// The last `count` things that a step did, oldest first, a line each: what it
/// was, of which unit, when it began after the beginning of the step and how
/// long it took. For the log of a rank that could not go on.
std::vector<std::string> last_actions(const torch::nn::Module& root,
                                      const StepTrace& trace,
                                      std::size_t count);

}  // namespace accordion
