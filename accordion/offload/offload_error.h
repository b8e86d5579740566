// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>

namespace accordion {

/// What was to be held outside of memory cannot be: what, where, what to do.
class OffloadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace accordion
