// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/comm/communicator.h"
#include "accordion/plan/link_type.h"

namespace accordion {

/// Measures the collectives of all ranks of `group` at once, from 64 KiB to
/// 64 MiB, gathered from fp32 into fp32 and bf16 and reduced from either into
/// fp32: an alpha-beta model of their link, on which a rank's share of
/// (ranks - 1) / ranks of the bytes takes its time. Unchanged `link` for one
/// rank.
///
/// Comm   some hundred all-gathers, reduce-scatters and barriers
/// Memory 128 MiB
plan::LinkType measure_link(Communicator& group, plan::LinkType link);

}  // namespace accordion
