// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "accordion/plan/memory_plan.h"

namespace accordion::plan {

/// How a kind of memory is drawn; in the order of kDeviceMemoryKinds.
struct MemoryKindStyle {
  char letter;
  int ansi;              ///< colour of 256 on a terminal
  std::string_view rgb;  ///< colour in HTML
};
inline constexpr std::array<MemoryKindStyle, kDeviceMemoryKinds.size()>
    kMemoryKindStyles = {{
        {'P', 33, "#3b7dd8"},
        {'U', 75, "#8ab8f0"},
        {'G', 34, "#3f9d4e"},
        {'R', 114, "#9bd0a3"},
        {'O', 130, "#a9713a"},
        {'C', 244, "#8c8c8c"},
        {'A', 208, "#ee8a2a"},
        {'W', 220, "#f3cf4d"},
        {'L', 162, "#c83f86"},
    }};

/// At most `count` points of the timeline: the first, the last, the highest,
/// and some between that are equally far apart.
[[nodiscard]] std::vector<const MemoryPoint*> sampled(const MemoryPlan& memory,
                                                      std::size_t count);

}  // namespace accordion::plan
