// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/stop_signal.h"

namespace accordion {
namespace {

// A handler can reach nothing but globals.
volatile std::sig_atomic_t signal_raised = 0;

void raise_flag(int) {
  signal_raised = 1;
}

}  // namespace

StopSignal::StopSignal() {
  signal_raised = 0;
  struct sigaction action {};
  action.sa_handler = raise_flag;
  // The default comes back once the handler ran: a second signal ends us. An
  // interrupted system call goes on, as the step at hand shall.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, &old_interrupt_);
  ::sigaction(SIGTERM, &action, &old_terminate_);
}

StopSignal::~StopSignal() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
}

bool StopSignal::raised() const {
  return signal_raised != 0;
}

}  // namespace accordion
