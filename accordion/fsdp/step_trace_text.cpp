// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/step_trace_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "accordion/fsdp/fsdp_state.h"

namespace accordion {

namespace {

constexpr double kMsPerNs = 1e-6;

}  // namespace

std::vector<std::string> last_actions(const torch::nn::Module& root,
                                      const StepTrace& trace,
                                      std::size_t count) {
  const auto& units = unsettled_state(root, "last_actions").executor->units();
  const auto& spans = trace.spans();
  std::vector<std::string> lines;
  for (std::size_t i = spans.size() - std::min(count, spans.size());
       i < spans.size(); ++i) {
    const Span& span = spans[i];
    std::string unit;
    if (span.unit >= 0) {
      const std::string& name =
          units[static_cast<std::size_t>(span.unit)]->name();
      unit = name.empty() ? " of the root" : fmt::format(" of '{}'", name);
    }
    lines.push_back(fmt::format(
        "{:10.3f} ms  {}{}, {}",
        static_cast<double>(span.begin_ns - trace.begin_ns()) * kMsPerNs,
        to_string(span.kind), unit,
        span.end_ns == Span::kOpen
            ? std::string("not over")
            : fmt::format("{:.3f} ms",
                          static_cast<double>(span.end_ns - span.begin_ns) *
                              kMsPerNs)));
  }
  return lines;
}

}  // namespace accordion
