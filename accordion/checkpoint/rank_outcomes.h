// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion::detail {

/// What a rank has to say of its part of a job: a text, or why there is none.
struct Outcome {
  bool failed = false;
  std::string text = {};
};

/// Runs `work`, and makes an outcome of the text that it returns or of what it
/// throws. CommError passes: it is no matter to agree on.
Outcome outcome_of(const std::function<std::string()>& work);

/// The outcomes of all ranks, in their order.
///
/// Comm  gather_texts
std::vector<Outcome> gather_outcomes(Communicator& world, const Outcome& mine);

/// The failures, by rank, with what failed (`caller`) and with which
/// checkpoint; empty where there are none.
std::string describe_failures(std::string_view caller,
                              const std::filesystem::path& path,
                              const std::vector<Outcome>& outcomes);

/// Runs `work` and throws CheckpointError on every rank where it threw on any.
///
/// Comm  gather_texts
void require_success(Communicator& world, std::string_view caller,
                     const std::filesystem::path& path,
                     const std::function<void()>& work);

}  // namespace accordion::detail
