// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// The text of every rank, in the order of ranks; they may differ in length.
///
/// Comm    two all-gathers, of 8 bytes and of the longest text a rank
/// Memory  world_size times the longest
/// Throws  CommError
std::vector<std::string> gather_texts(Communicator& communicator,
                                      std::string_view mine,
                                      std::string_view label);

}  // namespace accordion
