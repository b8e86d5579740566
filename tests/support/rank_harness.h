// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace accordion::testing {

/// What a rank body gets to know.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  /// Unique to this launch: the name under which its ranks meet.
  std::string session;
  /// Arguments that the test passed to run_ranks.
  std::vector<std::string> arguments;
};

/// How one rank ended.
struct RankResult {
  int exit_code = -1;  ///< -1 where a signal ended it
  int signal = 0;
  std::string output;  ///< stdout and stderr together
};

using RankBody = std::function<void(const RankContext&)>;

/// Declares a function that ranks run in processes of their own. `name` is
/// unique in the test program. GoogleTest assertions in the body count: a rank
/// with a failed assertion, or that throws, exits with 1.
///
/// Usage:  static const RankProgram kRing("ring", [](const RankContext& c) {…});
class RankProgram {
 public:
  RankProgram(std::string name, RankBody body);
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// Re-executes the test binary once per rank and waits. When a rank fails the
/// others are ended after `grace`; when `timeout` passes all are killed.
/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// are set as torchrun sets them.
std::vector<RankResult> run_ranks(
    const RankProgram& program, int world_size,
    std::vector<std::string> arguments = {},
    std::chrono::seconds timeout = std::chrono::seconds(60),
    std::chrono::milliseconds grace = std::chrono::milliseconds(2000));

/// run_ranks, and a GoogleTest failure that prints the output of the rank that
/// failed first unless every rank exited with 0.
void expect_ranks_pass(const RankProgram& program, int world_size,
                       std::vector<std::string> arguments = {},
                       std::chrono::seconds timeout = std::chrono::seconds(60));

/// Called by the test program's main: runs a rank body instead of the tests
/// when this process was started as a rank. Returns true and sets `exit_code`
/// in that case.
bool run_as_rank(int argc, char** argv, int& exit_code);

}  // namespace accordion::testing
