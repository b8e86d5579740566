// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

namespace accordion {

/// Who this process is among the ranks of the job, and where they meet.
///
/// The only place of Accordion that reads the environment.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  /// Ranks on this host.
  int local_world_size = 1;
  /// Of the host of rank 0.
  std::string address = "127.0.0.1";
  int port = 29500;
  /// Tells jobs on the same host and port apart (torchrun's run id); may be
  /// empty.
  std::string run_id = {};
  /// How often the launcher started all ranks again after one failed.
  int restart_count = 0;
  /// The launcher serves c10d's TCPStore at address and port already, so that
  /// rank 0 must not (torchrun's agent does).
  bool launcher_serves_store = false;
  /// Network interface for gloo (GLOO_SOCKET_IFNAME); empty: the one that leads
  /// to the host of rank 0.
  std::string network_interface = {};
  /// What the ranks of this host have in common and others have not; empty: the
  /// running kernel and the network namespace. Tests play several hosts with
  /// it.
  std::string host = {};
  /// The launcher whose variables were read: "torchrun", "Open MPI", "Slurm",
  /// or "none" for a process started by hand.
  std::string launcher = "none";

  /// Reads torchrun's variables (also set by `accordion run`), else Open MPI's,
  /// else Slurm's; without any, a world of one rank. MASTER_ADDR and
  /// MASTER_PORT hold for all; without them Open MPI on one host and Slurm find
  /// their own.
  ///
  /// Throws std::invalid_argument that names the variable when one is missing,
  ///        no number, or out of range
  static Rendezvous from_environment();

  /// Gives the value of a variable, or null.
  using Lookup = std::function<const char*(const char* variable)>;
  /// The same over any source of variables.
  static Rendezvous from_variables(const Lookup& lookup);
};

}  // namespace accordion
