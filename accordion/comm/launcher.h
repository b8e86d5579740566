// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace accordion {

struct LaunchOptions {
  /// PROGRAM and its arguments; the program is looked up in PATH.
  std::vector<std::string> command;
  /// Ranks to start on this host, at least 1.
  int num_ranks = 1;
  /// Rank 0 keeps the launcher's stdin, stdout and stderr, a terminal included,
  /// and its lines get no prefix.
  bool rank0_keeps_terminal = false;
  /// Gives each rank its part of the cores that the launcher may use, where
  /// there is at least one for each, so that ranks do not wander from caches
  /// and memory that they have warmed.
  bool bind_to_cores = true;
  /// How often all ranks are started again after one failed.
  int max_restarts = 0;
  /// How long ranks may take to end after SIGTERM before they are killed.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

/// Runs local ranks until all have ended, for `accordion run`.
///
/// Each rank sees torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID) with a free
/// port and a run id of this launch. Unless they are set: OMP_NUM_THREADS=1,
/// and GLIBC_TUNABLES that keep large blocks on the heap (no page faults in
/// steps). Each runs on cores of its own, see bind_to_cores. Lines of its
/// output are passed on with "[rank r] " before them. SIGINT, SIGTERM and
/// SIGHUP are passed on to all ranks. When one fails the others are ended, and
/// stderr says which failed first and how; with max_restarts all are then
/// started again, and see in TORCHELASTIC_RESTART_COUNT how often that was.
/// Ranks do not outlive the launcher.
///
/// Returns 0, or what a shell would for the rank that failed first, the last
///         time: its exit code, or 128 + signal
/// Threads a program's only thread: signals are blocked while it runs
/// Throws  std::invalid_argument for options without a command or rank,
///         std::system_error when a rank cannot be started
int run_local_ranks(const LaunchOptions& options);

}  // namespace accordion
