// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>

namespace accordion {

/// A file or folder of weights or of a run's state that cannot be used: what,
/// where, what to do.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace accordion
