// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/comparison.h"

#include <algorithm>

#include <fmt/format.h>

#include "accordion/plan/report/run_cost.h"
#include "accordion/plan/report/time_parts.h"
#include "accordion/plan/report/units.h"

namespace accordion::plan {
namespace {

/// The head of a column of words, which begin at its left.
constexpr std::string_view kSettings = "settings";

/// A line of a comparison: the same property of each plan.
template <typename Value>
void add_line(TableRows& rows, std::span<const PlanReport> reports,
              const std::string& name, const Value& value) {
  std::vector<std::string> line = {name};
  for (const PlanReport& report : reports) {
    line.push_back(value(report));
  }
  const bool all_empty =
      std::all_of(line.begin() + 1, line.end(),
                  [](const std::string& cell) { return cell.empty(); });
  if (!all_empty) {
    rows.push_back(std::move(line));
  }
}

std::string nonzero_gib(double bytes) {
  return bytes > 0.0 ? format_gib(bytes) : "";
}

void add_memory(TableRows& rows, std::span<const PlanReport> reports) {
  add_line(rows, reports, "memory a GPU", [](const PlanReport& report) {
    return format_gib(report.plan.memory.reserved_bytes);
  });
  for (const DeviceMemoryKind& kind : kDeviceMemoryKinds) {
    add_line(rows, reports, fmt::format("  {}", kind.name),
             [&](const PlanReport& report) {
               return nonzero_gib(report.plan.memory.highest().*kind.bytes);
             });
  }
  add_line(rows, reports, "memory on the host", [](const PlanReport& report) {
    return nonzero_gib(report.plan.memory.host_bytes);
  });
}

void add_time(TableRows& rows, std::span<const PlanReport> reports) {
  add_line(rows, reports, "step", [](const PlanReport& report) {
    return format_seconds(report.plan.time.step_s);
  });
  const std::size_t num_parts = time_parts({}).size();
  for (std::size_t part = 0; part < num_parts; ++part) {
    add_line(rows, reports, fmt::format("  {}", time_parts({})[part].name),
             [&](const PlanReport& report) {
               const TimePlan& time = report.plan.time;
               const double seconds = time_parts(time)[part].seconds;
               return seconds > 1e-9 * time.step_s ? format_seconds(seconds)
                                                   : "";
             });
  }
}

void add_cost(TableRows& rows, std::span<const PlanReport> reports) {
  const auto cost = [](const PlanReport& report, auto text) {
    return report.prices.train_tokens > 0.0
               ? text(run_cost(report.request, report.plan, report.prices))
               : std::string();
  };
  add_line(rows, reports, "time of the run", [&](const PlanReport& report) {
    return cost(report,
                [](const RunCost& run) { return format_seconds(run.seconds); });
  });
  add_line(rows, reports, "GPU-hours", [&](const PlanReport& report) {
    return cost(report,
                [](const RunCost& run) { return format_count(run.gpu_hours); });
  });
  add_line(rows, reports, "cost of GPUs", [&](const PlanReport& report) {
    return cost(report, [](const RunCost& run) {
      return run.gpu_cost > 0.0 ? format_amount(run.gpu_cost) : std::string();
    });
  });
}

std::size_t columns_of(const std::string& text) {
  // Bytes that begin a character of UTF-8.
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

TableRows compared(std::span<const PlanReport> reports) {
  TableRows rows;
  add_line(rows, reports, "", [](const PlanReport& report) {
    return report.name.empty() ? std::string("plan") : report.name;
  });
  add_line(rows, reports, "fits", [](const PlanReport& report) {
    return std::string(report.plan.fits ? "yes" : "no");
  });
  add_line(rows, reports, "cluster", [](const PlanReport& report) {
    return short_name(report.request.cluster);
  });
  add_line(rows, reports, "tokens/s a GPU", [](const PlanReport& report) {
    return format_count(report.plan.tokens_per_s_per_gpu);
  });
  add_line(rows, reports, "MFU", [](const PlanReport& report) {
    return format_percent(report.plan.mfu);
  });
  add_line(rows, reports, "exposed communication",
           [](const PlanReport& report) {
             const TimePlan& time = report.plan.time;
             return format_percent(time.exposed_s() / time.step_s);
           });
  add_line(rows, reports, "tokens a step", [](const PlanReport& report) {
    return format_count(static_cast<double>(report.plan.tokens_per_step));
  });
  add_memory(rows, reports);
  add_time(rows, reports);
  add_cost(rows, reports);
  return rows;
}

TableRows listed(std::span<const FoundPlan> plans) {
  TableRows rows = {{"", "tokens/s a GPU", "MFU", "memory", "exposed",
                     "tokens a step", std::string(kSettings)}};
  for (const FoundPlan& found : plans) {
    const Plan& plan = found.plan;
    rows.push_back({fmt::format("{}", rows.size()),
                    format_count(plan.tokens_per_s_per_gpu),
                    format_percent(plan.mfu),
                    format_gib(plan.memory.reserved_bytes),
                    format_percent(plan.time.exposed_s() / plan.time.step_s),
                    format_count(static_cast<double>(plan.tokens_per_step)),
                    fmt::format("{}", fmt::join(found.keys, " "))});
  }
  return rows;
}

TableRows listed(std::span<const Limit> limits) {
  TableRows rows = {{"", "parameters", "GPUs", "memory", "on the host",
                     "tokens/s a GPU", "MFU"}};
  for (const Limit& limit : limits) {
    const std::string name =
        limit.keys.empty() ? "as asked"
                           : fmt::format("{}", fmt::join(limit.keys, " "));
    if (!limit.request) {
      rows.push_back({name, "nothing fits"});
      continue;
    }
    rows.push_back(
        {name,
         format_count(static_cast<double>(limit.request->model.num_params())),
         format_count(static_cast<double>(limit.request->cluster.num_gpus())),
         format_gib(limit.plan.memory.reserved_bytes),
         format_gib(limit.plan.memory.host_bytes),
         format_count(limit.plan.tokens_per_s_per_gpu),
         format_percent(limit.plan.mfu)});
  }
  return rows;
}

std::string to_text(const TableRows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - columns_of(row[i]), ' ');
      const bool left = i == 0 || rows.front()[i] == kSettings;
      line += (i == 0 ? "" : "  ") + (left ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace accordion::plan
