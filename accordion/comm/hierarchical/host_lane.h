// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "accordion/comm/hierarchical/hierarchical_communicator.h"
#include "accordion/comm/hierarchical/lane.h"
#include "accordion/comm/hierarchical/scratch.h"

namespace accordion::detail {

/// What the phases of a collective work with; used by a lane's thread alone.
struct HostContext {
  std::unique_ptr<Communicator> local;
  std::unique_ptr<Communicator> between;
  Scratch scratch = {};  ///< of the collective that runs
};
using HostPhases = std::function<void(HostContext& host)>;

/// The two communicators of a rank and the thread that uses them.
///
/// After a CommError the ranks of the host are told through
/// Communicator::abandon, and later tasks throw the same again.
class HostLane {
 public:
  explicit HostLane(HostLink link)
      : host_{std::move(link.local), std::move(link.between)} {}

  /// Queues `phases`. A CommError among what became of them says that `what`
  /// failed.
  std::future<Outcome> submit(std::string what, HostPhases phases);
  /// The same where nobody waits: an error of any kind ends the lane.
  void post(std::string what, HostPhases phases);
  /// Queues the end of the lane.
  void abandon(std::string reason);

 private:
  void run(const std::string& what, const HostPhases& phases);
  void fail(std::string message);

  HostContext host_;     // used by the lane's thread, as failure_
  std::string failure_;  // what ended the lane; else empty
  Lane lane_;            // last: its thread ends first
};

}  // namespace accordion::detail
