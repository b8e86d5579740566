// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/schedule/agreed_order.h"

namespace accordion {

/// The ranks of a pass that has no schedule, taking turns ([Note: turns]).
class RankTurns {
 public:
  /// `label`: of the all-gathers, in errors.
  RankTurns(Communicator& world, std::string label,
            std::vector<ScheduledUnit> units);

  /// What every rank does next.
  ///
  /// Comm    one all-gather of 12 bytes a rank over all ranks
  /// Throws  CommError that says what this rank came to
  Turn next(const Arrival& mine);

 private:
  Communicator& world_;
  std::string label_;
  std::vector<ScheduledUnit> units_;  // for errors
  AgreedOrder order_;
};

}  // namespace accordion
