// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace accordion {

/// Who this process is among the ranks of the job, and where they meet.
///
/// The only place of Accordion that reads the environment.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;           ///< ranks on this host
  std::string address = "127.0.0.1";  ///< of the host of rank 0
  int port = 29500;
  /// Tells jobs on the same host and port apart (torchrun's run id); may be
  /// empty.
  std::string run_id;
  /// The launcher whose variables were read: "torchrun", "Open MPI", "Slurm",
  /// or "none" for a process started by hand.
  std::string launcher = "none";

  /// Reads torchrun's variables (also set by `accordion run`), else Open MPI's,
  /// else Slurm's; without any, a world of one rank.
  ///
  /// Throws std::invalid_argument that names the variable when one is missing,
  ///        no number, or out of range
  static Rendezvous from_environment();
};

}  // namespace accordion
