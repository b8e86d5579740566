// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/plan_charts.h"

#include <algorithm>

#include <fmt/format.h>

#include "accordion/plan/report/memory_kinds.h"
#include "accordion/plan/report/units.h"

namespace accordion::plan {
namespace {

constexpr double kWidth = 960.0;
constexpr double kHeight = 260.0;
constexpr double kLane = 30.0;

/// One kind's band between what lies below it and its own top.
std::string band(const MemoryPlan& memory, std::size_t kind, double whole) {
  const double step = kWidth / static_cast<double>(std::max<std::size_t>(
                                   1, memory.timeline.size() - 1));
  std::string up;
  std::string down;
  for (std::size_t i = 0; i < memory.timeline.size(); ++i) {
    double below = 0.0;
    for (std::size_t k = 0; k < kind; ++k) {
      below += memory.timeline[i].held.*kDeviceMemoryKinds[k].bytes;
    }
    const double top =
        below + memory.timeline[i].held.*kDeviceMemoryKinds[kind].bytes;
    const double x = step * static_cast<double>(i);
    up += fmt::format("{:.1f},{:.1f} ", x, kHeight * (1.0 - top / whole));
    down = fmt::format("{:.1f},{:.1f} ", x, kHeight * (1.0 - below / whole)) +
           down;
  }
  return fmt::format(
      "<polygon points=\"{}{}\" fill=\"{}\"><title>{}</title></polygon>\n", up,
      down, kMemoryKindStyles[kind].rgb, kDeviceMemoryKinds[kind].name);
}

bool appears(const MemoryPlan& memory, std::size_t kind) {
  return std::any_of(memory.timeline.begin(), memory.timeline.end(),
                     [&](const MemoryPoint& point) {
                       return point.held.*kDeviceMemoryKinds[kind].bytes > 0.0;
                     });
}

std::string legend(const MemoryPlan& memory) {
  std::string text = "<p class=\"legend\">";
  for (std::size_t kind = 0; kind < kDeviceMemoryKinds.size(); ++kind) {
    if (appears(memory, kind)) {
      text += fmt::format(
          "<span><i style=\"background:{}\"></i>{} {}</span> ",
          kMemoryKindStyles[kind].rgb, kDeviceMemoryKinds[kind].name,
          format_gib(memory.highest().*kDeviceMemoryKinds[kind].bytes));
    }
  }
  return text + "at the peak</p>\n";
}

std::string_view action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::Unshard:
      return "gather of";
    case ActionKind::Reduce:
      return "reduction of";
    case ActionKind::AllReduce:
      return "all-reduce of";
    default:
      return is_of_forward(kind) ? "forward of" : "backward of";
  }
}

std::string_view action_rgb(ActionKind kind) {
  switch (kind) {
    case ActionKind::Unshard:
      return "#3b7dd8";
    case ActionKind::Reduce:
      return "#3f9d4e";
    case ActionKind::AllReduce:
      return "#9bd0a3";
    default:
      return is_of_forward(kind) ? "#ee8a2a" : "#c8643b";
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result.push_back(c);
    }
  }
  return result;
}

std::string memory_chart(const PlanReport& report) {
  const MemoryPlan& memory = report.plan.memory;
  const double device = report.request.cluster.gpu.memory_bytes;
  const double whole = 1.05 * std::max(device, memory.highest().total());
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"memory "
      "over the last microbatch\">\n",
      kWidth, kHeight);
  for (std::size_t kind = 0; kind < kDeviceMemoryKinds.size(); ++kind) {
    if (appears(memory, kind)) {
      svg += band(memory, kind, whole);
    }
  }
  const double line = kHeight * (1.0 - device / whole);
  svg += fmt::format(
      "<line x1=\"0\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" "
      "class=\"limit\"/><text x=\"4\" y=\"{:.1f}\">{} of {}</text></svg>\n",
      kWidth, line, line, line + 14.0, format_gib(device),
      escaped(report.request.cluster.gpu.name));
  return svg + legend(memory);
}

std::string stream_chart(const PlanReport& report) {
  const auto& events = report.plan.time.events;
  double end = 0.0;
  for (const StreamEvent& event : events) {
    end = std::max(end, event.end_s);
  }
  static constexpr std::string_view kStreams[] = {"compute", "gather",
                                                  "reduce"};
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"streams of "
      "the last microbatch\">\n",
      kWidth, 3.0 * kLane);
  for (const StreamEvent& event : events) {
    const double x = kWidth * event.begin_s / end;
    const double width =
        std::max(0.3, kWidth * (event.end_s - event.begin_s) / end);
    const std::string unit = event.unit == 0
                                 ? std::string("the root")
                                 : fmt::format("layers.{}", event.unit - 1);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" "
        "fill=\"{}\"><title>{} {}: {}</title></rect>\n",
        x, kLane * static_cast<int>(event.stream) + 3.0, width, kLane - 6.0,
        action_rgb(event.kind), action_name(event.kind), unit,
        format_seconds(event.end_s - event.begin_s));
  }
  for (int lane = 0; lane < 3; ++lane) {
    svg += fmt::format("<text x=\"4\" y=\"{:.0f}\">{}</text>",
                       kLane * lane + 20.0, kStreams[lane]);
  }
  return svg + fmt::format("</svg>\n<p>{} from end to end</p>\n",
                           format_seconds(end));
}

}  // namespace accordion::plan
