// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <torch/nn/module.h>

namespace accordion {

/// A unit whose forward gave a number that is infinite or none.
struct NonfiniteOutput {
  std::string unit;  ///< FQN; "" for the root
  int rank = 0;
};

/// Runs `forward`, which calls the sharded module, and finds the first unit, in
/// the order in which calls end, with such an output on any rank; nullopt where
/// all are finite.
///
/// Requires  every rank
/// Comm      that of `forward`, and one all-gather of 8 bytes a rank
std::optional<NonfiniteOutput> first_nonfinite_output(
    const torch::nn::Module& root, const std::function<void()>& forward);

}  // namespace accordion
