// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/stop_signal.h"

namespace accordion {
namespace {

// A handler can reach nothing but globals.
volatile std::sig_atomic_t signal_raised = 0;
volatile pid_t first_sender = 0;  // 0: the kernel, for a terminal

void handle(int signal, siginfo_t* info, void* /*context*/) {
  if (signal_raised == 0) {
    first_sender = info->si_pid;
    signal_raised = 1;
  } else if (info->si_pid == first_sender) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // delivered when this handler returns
  }
}

}  // namespace

StopSignal::StopSignal() {
  signal_raised = 0;
  struct sigaction action {};
  action.sa_sigaction = handle;
  // An interrupted system call goes on, as the step at hand shall.
  action.sa_flags = SA_SIGINFO | SA_RESTART;
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
