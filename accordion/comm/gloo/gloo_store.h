// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/rank_names.h"
#include "accordion/comm/rendezvous.h"

namespace accordion {

/// Where the ranks of a job meet over the network: c10d's TCPStore, which rank
/// 0 serves unless the launcher does. A handle, shared by the groups of a mesh.
///
/// A job that makes several, one after another or at once, keeps them apart by
/// counting; all ranks make them in the same order.
class GlooStore {
 public:
  /// Throws CommError when rank 0 does not answer within `timeout`, or no
  ///        interface leads to the other hosts; std::invalid_argument for an
  ///        interface that this host lacks
  GlooStore(const Rendezvous& rendezvous, std::chrono::milliseconds timeout);

  /// Gives every rank's `value`, by rank, to every rank of a group.
  ///
  /// Comm   collective among `world_size` ranks that give the same `key`, once
  /// Throws CommError that names the ranks that did not come in time
  std::vector<std::string> exchange(std::string_view key,
                                    std::string_view value, int rank,
                                    const detail::RankNames& names,
                                    int world_size) const;

  struct State;
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace accordion
