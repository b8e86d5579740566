// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion::testing {

struct CommandResult {
  int exit_code = -1;
  std::string output;  ///< stdout and stderr together
};

/// Tests that run the accordion command as a user's shell does.
class CommandShell : public ::testing::Test {
 protected:
  /// Runs a line of shell in which $accordion is the command.
  CommandResult shell(const std::string& line) {
    const std::filesystem::path script = folder_.write(
        "line.sh", fmt::format("cd '{}'\naccordion='{}'\n{}\n",
                               folder_.path().string(), ACCORDION_CLI, line));
    const std::filesystem::path out = folder_.path() / "out.txt";
    const int status = std::system(
        fmt::format("sh '{}' > '{}' 2>&1", script.string(), out.string())
            .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out)};
  }

  TemporaryFolder folder_;
};

}  // namespace accordion::testing
