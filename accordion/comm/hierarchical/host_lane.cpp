// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/host_lane.h"

#include <fmt/format.h>

namespace accordion::detail {
namespace {

std::string failure_text(const std::string& what, const std::exception& error) {
  return fmt::format("[hierarchical] {} failed: {}", what, error.what());
}

}  // namespace

std::future<Outcome> HostLane::submit(std::string what, HostPhases phases) {
  return lane_.submit([this, what = std::move(what),
                       phases = std::move(phases)] { run(what, phases); });
}

void HostLane::post(std::string what, HostPhases phases) {
  lane_.submit([this, what = std::move(what), phases = std::move(phases)] {
    try {
      run(what, phases);
    } catch (const std::exception& error) {
      fail(failure_text(what, error));
    }
  });
}

void HostLane::abandon(std::string reason) {
  lane_.submit([this, reason = std::move(reason)] { fail(reason); });
}

void HostLane::run(const std::string& what, const HostPhases& phases) {
  if (!failure_.empty()) {
    throw CommError(failure_);
  }
  try {
    host_.scratch.clear();
    phases(host_);
  } catch (const CommError& error) {
    fail(failure_text(what, error));
    throw CommError(failure_);
  }
}

void HostLane::fail(std::string message) {
  if (failure_.empty()) {
    failure_ = std::move(message);
    host_.local->abandon(failure_);
    host_.between->abandon(failure_);
  }
}

}  // namespace accordion::detail
