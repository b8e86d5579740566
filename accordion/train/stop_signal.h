// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>

namespace accordion {

/// While it lives, the first SIGINT or SIGTERM only raises a flag, so that a
/// run can end after the step at hand; a second one from the same sender ends
/// the process as usual. One from another sender is the same wish once more:
/// Ctrl-C reaches a rank from the terminal and again from its launcher.
///
/// The handlers found are put back at the end. One at a time per process.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  [[nodiscard]] bool raised() const;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace accordion
