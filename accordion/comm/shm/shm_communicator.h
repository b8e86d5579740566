// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

struct ShmOptions {
  int rank = 0;
  int world_size = 1;
  /// What the ranks of the group have in common and no other group on this host
  /// has, such as address, port and run id of the job and the mesh axis.
  std::string name = {};
  /// Longest wait for a peer, at the start and in each operation.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// What errors call the ranks, by rank; empty: 0, 1, …
  std::vector<int> members = {};
};

/// Joins the processes of one host that give the same name.
///
/// A peer that dies is reported within a second, a rank that calls something
/// else at once; both as CommError on every rank that waits, after which the
/// communicator is of no more use. Nothing is left on the host however the
/// processes end.
///
/// Ordinary memory  an operation without a CommBuffer moves its bytes when it
///                  is waited on, after those issued before it
/// In flight        at most 64 operations of a kind
/// Lifetime         a Work must not outlive the communicator
/// Throws           CommError when peers are late or memory is short;
///                  std::invalid_argument for a rank outside the world
std::unique_ptr<Communicator> connect_shm(const ShmOptions& options);

/// The same for ranks that are threads of this process: element r belongs to
/// the thread of rank r.
std::vector<std::unique_ptr<Communicator>> make_local_shm_group(
    int world_size, std::chrono::milliseconds timeout,
    std::vector<int> members = {});

}  // namespace accordion
