// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/rank_outcomes.h"

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"
#include "accordion/comm/gather_texts.h"

namespace accordion::detail {

namespace {

/// Before the text of an outcome that is sent.
constexpr char kFailed = '!';
constexpr char kDone = '=';

}  // namespace

Outcome outcome_of(const std::function<std::string()>& work) {
  try {
    return {.failed = false, .text = work()};
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    return {.failed = true, .text = error.what()};
  }
}

std::vector<Outcome> gather_outcomes(Communicator& world, const Outcome& mine) {
  std::vector<Outcome> outcomes;
  for (std::string& text : gather_texts(
           world, (mine.failed ? kFailed : kDone) + mine.text, "checkpoint")) {
    const bool failed = text.front() == kFailed;
    outcomes.push_back({.failed = failed, .text = text.erase(0, 1)});
  }
  return outcomes;
}

std::string describe_failures(std::string_view caller,
                              const std::filesystem::path& path,
                              const std::vector<Outcome>& outcomes) {
  std::string text;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].failed) {
      text += fmt::format("\n  rank {}: {}", rank, outcomes[rank].text);
    }
  }
  return text.empty()
             ? text
             : fmt::format("[{}] '{}':{}", caller, path.string(), text);
}

void require_success(Communicator& world, std::string_view caller,
                     const std::filesystem::path& path,
                     const std::function<void()>& work) {
  const Outcome mine = outcome_of([&] {
    work();
    return std::string();
  });
  const std::string failures =
      describe_failures(caller, path, gather_outcomes(world, mine));
  if (!failures.empty()) {
    throw CheckpointError(failures);
  }
}

}  // namespace accordion::detail
