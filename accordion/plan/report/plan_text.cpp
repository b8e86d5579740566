// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "accordion/plan/report/memory_kinds.h"
#include "accordion/plan/report/plan_report.h"
#include "accordion/plan/report/run_cost.h"
#include "accordion/plan/report/time_parts.h"
#include "accordion/plan/report/units.h"

namespace accordion::plan {
namespace {

constexpr int kBarWidth = 30;
constexpr int kTimelineWidth = 48;
constexpr std::size_t kTimelineRows = 16;

std::string coloured(const std::string& text, int ansi,
                     const TextStyle& style) {
  return style.colour && !text.empty()
             ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", ansi, text)
             : text;
}

std::string heading(const std::string& text, const TextStyle& style) {
  return style.colour ? fmt::format("\n\x1b[1m{}\x1b[0m\n", text)
                      : fmt::format("\n{}\n", text);
}

std::string verdict(const PlanReport& report) {
  const double needed = report.plan.memory.reserved_bytes;
  const double has = report.request.cluster.gpu.memory_bytes;
  return report.plan.fits
             ? fmt::format("Fits: {} of {} a GPU, {} are left.",
                           format_gib(needed), format_gib(has),
                           format_gib(has - needed))
             : fmt::format("Does not fit: {} a GPU are needed, {} are there.",
                           format_gib(needed), format_gib(has));
}

/// Without the spaces that an empty bar leaves behind.
std::string line_of(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string memory_line(std::string_view name, double bytes, double whole,
                        int ansi, const TextStyle& style) {
  return line_of(
      fmt::format("  {:<22} {:>9.2f}  {}", name, bytes / kGib,
                  coloured(bar(bytes / whole, kBarWidth), ansi, style)));
}

std::string memory_text(const PlanReport& report, const TextStyle& style) {
  const MemoryPlan& memory = report.plan.memory;
  const DeviceMemory& peak = memory.highest();
  const double whole =
      std::max(memory.reserved_bytes, report.request.cluster.gpu.memory_bytes);
  std::string text =
      heading(fmt::format("Memory of a GPU at its peak ({}), GiB",
                          memory.timeline[memory.peak].when),
              style);
  for (std::size_t i = 0; i < kDeviceMemoryKinds.size(); ++i) {
    const double bytes = peak.*kDeviceMemoryKinds[i].bytes;
    if (bytes > 0.0) {
      text += memory_line(kDeviceMemoryKinds[i].name, bytes, whole,
                          kMemoryKindStyles[i].ansi, style);
    }
  }
  text += memory_line("held by the allocator",
                      memory.reserved_bytes - peak.total(), whole, 244, style);
  text += fmt::format("  {:<22} {:>9.2f}  of {:.2f}\n", "in all",
                      memory.reserved_bytes / kGib,
                      report.request.cluster.gpu.memory_bytes / kGib);
  if (memory.host_bytes > 0.0) {
    text += fmt::format("  {:<22} {:>9.2f}\n", "on the host",
                        memory.host_bytes / kGib);
  }
  if (memory.disk_bytes > 0.0) {
    text +=
        fmt::format("  {:<22} {:>9.2f}\n", "on disk", memory.disk_bytes / kGib);
  }
  return text;
}

/// One letter for each 1 / kTimelineWidth of the device's memory, rounded so
/// that the row is as long as its total.
std::string stacked(const DeviceMemory& held, double whole,
                    const TextStyle& style) {
  std::string text;
  double sum = 0.0;
  long drawn = 0;
  for (std::size_t i = 0; i < kDeviceMemoryKinds.size(); ++i) {
    sum += held.*kDeviceMemoryKinds[i].bytes;
    const long until = std::lround(sum / whole * kTimelineWidth);
    text += coloured(
        std::string(static_cast<std::size_t>(std::max(0L, until - drawn)),
                    kMemoryKindStyles[i].letter),
        kMemoryKindStyles[i].ansi, style);
    drawn = std::max(drawn, until);
  }
  return text;
}

std::string legend(const PlanReport& report, const TextStyle& style) {
  std::string text;
  for (std::size_t i = 0; i < kDeviceMemoryKinds.size(); ++i) {
    const auto& points = report.plan.memory.timeline;
    if (std::any_of(points.begin(), points.end(), [&](const MemoryPoint& at) {
          return at.held.*kDeviceMemoryKinds[i].bytes > 0.0;
        })) {
      const auto& [letter, ansi, rgb] = kMemoryKindStyles[i];
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          coloured(std::string(1, letter), ansi, style),
                          kDeviceMemoryKinds[i].name);
    }
  }
  return text;
}

std::string timeline_text(const PlanReport& report, const TextStyle& style) {
  const MemoryPlan& memory = report.plan.memory;
  const double whole = std::max(memory.highest().total(),
                                report.request.cluster.gpu.memory_bytes);
  std::string text =
      heading(fmt::format("Memory over the last microbatch of a step, GiB "
                          "(a full row is {:.1f})",
                          whole / kGib),
              style);
  for (const MemoryPoint* const point : sampled(memory, kTimelineRows)) {
    text += fmt::format("  {:<24} {:>7.2f}  {}\n", point->when,
                        point->held.total() / kGib,
                        stacked(point->held, whole, style));
  }
  return text + "  " + legend(report, style) + "\n";
}

std::string time_text(const PlanReport& report, const TextStyle& style) {
  const TimePlan& time = report.plan.time;
  std::string text =
      heading("Time of a step: " + format_seconds(time.step_s), style);
  for (const TimePart& part : time_parts(time)) {
    if (part.seconds > 1e-9 * time.step_s) {
      text += fmt::format("  {:<16} {:>9}  {:>6}  {:<{}}  {}\n", part.name,
                          format_seconds(part.seconds),
                          format_percent(part.seconds / time.step_s),
                          bar(part.seconds / time.step_s, kBarWidth), kBarWidth,
                          part.what);
    }
  }
  return text;
}

std::string speed_text(const PlanReport& report, const TextStyle& style) {
  const Plan& plan = report.plan;
  const TimePlan& time = plan.time;
  std::string text = heading("Speed", style);
  text += fmt::format(
      "  {} tokens/s a GPU, {} tokens/s in all; {} tokens a step\n"
      "  MFU {}: {:.0f} TFLOP/s a GPU of a peak of {:.0f}\n"
      "  Exposed communication {}, {} of the step; collectives take {}\n"
      "  A rank sends {:.2f} GiB a step in {:.0f} collectives of data ranks\n",
      format_count(plan.tokens_per_s_per_gpu),
      format_count(plan.tokens_per_s_per_gpu *
                   static_cast<double>(report.request.strategy.num_gpus())),
      format_count(static_cast<double>(plan.tokens_per_step)),
      format_percent(plan.mfu), plan.model_flops_per_s_per_gpu / 1e12,
      report.request.cluster.gpu.peak_16bit_flops / 1e12,
      format_seconds(time.exposed_s()),
      format_percent(time.exposed_s() / time.step_s),
      format_seconds(time.gather_s + time.reduce_s),
      time.collective_bytes / kGib, time.num_collectives);
  return text;
}

std::string cost_text(const PlanReport& report, const TextStyle& style) {
  const Prices& prices = report.prices;
  if (prices.train_tokens <= 0.0) {
    return "";
  }
  const RunCost cost = run_cost(report.request, report.plan, prices);
  const std::string energy = cost.kwh < 1e4
                                 ? fmt::format("{:.1f} kWh", cost.kwh)
                                 : fmt::format("{:.1f} MWh", cost.kwh / 1e3);
  std::string text = heading(
      fmt::format("A run of {} tokens", format_count(prices.train_tokens)),
      style);
  text += fmt::format(
      "  {} ({} steps), {} GPU-hours\n"
      "  {}: boards at their limit of {:.0f} W, times power_factor "
      "{:g}\n",
      format_seconds(cost.seconds), format_count(cost.steps),
      format_count(cost.gpu_hours), energy, report.request.cluster.gpu.power_w,
      prices.power_factor);
  if (prices.gpu_hour_price > 0.0) {
    text += fmt::format("  {} for GPUs at {:g} an hour\n",
                        format_amount(cost.gpu_cost), prices.gpu_hour_price);
  }
  if (prices.kwh_price > 0.0) {
    text += fmt::format("  {} for energy at {:g} a kWh\n",
                        format_amount(cost.energy_cost), prices.kwh_price);
  }
  return text;
}

std::string advice_text(const PlanReport& report, const TextStyle& style) {
  std::string text = heading("What limits it", style);
  text += "  " + report.constraint + "\n";
  text +=
      heading(report.plan.fits ? "Worth trying" : "What makes it fit", style);
  if (report.advice.empty()) {
    return text + (report.plan.fits
                       ? "  No single change gains 1 %.\n"
                       : "  No one or two of the changes known here.\n");
  }
  for (const Advice& each : report.advice) {
    const ChangedPlan& changed = each.changed;
    const std::string keys = advice_keys(report, each);
    const std::string gain =
        report.plan.fits
            ? fmt::format("{:+.1f} % tokens/s", 100.0 * each.gain)
            : fmt::format("{} tokens/s a GPU",
                          format_count(changed.plan.tokens_per_s_per_gpu));
    text += fmt::format(
        "  {}\n    {}, {} a GPU, {} tokens a step: {}\n", keys, gain,
        format_gib(changed.plan.memory.reserved_bytes),
        format_count(static_cast<double>(changed.plan.tokens_per_step)),
        changed.change.why);
  }
  return text;
}

}  // namespace

std::string to_text(const PlanReport& report, const TextStyle& style) {
  std::string text;
  for (const std::string& note : report.notes) {
    text += "Note: " + note + "\n";
  }
  text +=
      fmt::format("{}\n{}\n{}\n\n{}\n", describe_model(report.request.model),
                  describe_cluster(report.request.cluster),
                  describe_settings(report.request), verdict(report));
  return text + memory_text(report, style) + timeline_text(report, style) +
         time_text(report, style) + speed_text(report, style) +
         cost_text(report, style) + advice_text(report, style);
}

}  // namespace accordion::plan
