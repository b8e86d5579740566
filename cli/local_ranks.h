// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/comm/rendezvous.h"

namespace accordion::cli {

/// Throws std::invalid_argument, with `command` as prefix, where --nproc was
/// given (`num_ranks` > 0) to a process that a launcher made a rank already.
void check_not_a_rank(const std::string& command, int num_ranks,
                      const Rendezvous& rendezvous);

/// Starts the ranks as processes of this same command, with `arguments`, which
/// learn from their environment that they are ranks. Returns what
/// run_local_ranks returns.
int start_ranks(std::vector<std::string> arguments, int num_ranks);

}  // namespace accordion::cli
