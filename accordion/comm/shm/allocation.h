// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "accordion/comm/shm/operation.h"

namespace accordion::detail {

/// Makes and maps the segments of one allocation, after the ranks compared
/// their calls.
///
/// All ranks agree on the outcome of each step: either every rank has its
/// mappings or every rank throws, and the communicator stays of use.
///
/// Comm   collective: call `request.number` of CommOp::Allocate, posted before
/// Throws CommError that names the bytes and the limit
std::vector<std::shared_ptr<Mapping>> map_segments(
    ShmContext& context, const SegmentRequest& request);

}  // namespace accordion::detail
