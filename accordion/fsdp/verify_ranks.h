// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/fsdp/unit_discovery.h"

namespace accordion {

/// Compares what is about to be sharded across ranks: names, shapes and dtypes,
/// and with `values` the bytes of the parameters.
///
/// Comm   one all-gather of 64 KiB a rank
/// Throws c10::ValueError that names the first unit and rank that differ from
///        rank 0
void verify_ranks(const std::vector<UnitMembers>& units,
                  Communicator& communicator, bool values);

/// Gives the parameters the values that rank 0 has. Those on meta have none.
///
/// Comm  one broadcast a parameter
void broadcast_values(const std::vector<UnitMembers>& units,
                      Communicator& communicator);

}  // namespace accordion
