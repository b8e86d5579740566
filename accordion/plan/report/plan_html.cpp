// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/plan_html.h"

#include <fmt/format.h>

#include "accordion/plan/report/plan_charts.h"
#include "accordion/plan/report/time_parts.h"
#include "accordion/plan/report/units.h"

namespace accordion::plan {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em;
  padding: 0 1em; color: #222; background: #fff; }
table { border-collapse: collapse; }
td, th { padding: .15em .8em; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
svg { width: 100%; border: 1px solid #ddd; }
svg text { font: 11px system-ui, sans-serif; fill: #222; }
.limit { stroke: #b00020; stroke-dasharray: 6 4; }
.legend span { margin-right: 1em; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em;
  margin-right: .3em; }
.no { color: #b00020; }
code { background: #f2f2f2; padding: 0 .2em; }
</style>
)";

std::string table_html(const TableRows& rows) {
  std::string html = "<table>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* const cell = i == 0 ? "th" : "td";
    html += "<tr>";
    for (const std::string& text : rows[i]) {
      html += fmt::format("<{0}>{1}</{0}>", cell, escaped(text));
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string time_html(const PlanReport& report) {
  const TimePlan& time = report.plan.time;
  TableRows rows = {{"time of a step", format_seconds(time.step_s), "", ""}};
  for (const TimePart& part : time_parts(time)) {
    if (part.seconds > 1e-9 * time.step_s) {
      rows.push_back({std::string(part.name), format_seconds(part.seconds),
                      format_percent(part.seconds / time.step_s),
                      std::string(part.what)});
    }
  }
  return table_html(rows);
}

std::string advice_html(const PlanReport& report) {
  std::string html = fmt::format("<p>{}</p>\n", escaped(report.constraint));
  if (report.advice.empty()) {
    return html;
  }
  html +=
      fmt::format("<p>{}</p>\n<ul>\n",
                  report.plan.fits ? "Worth trying:" : "What makes it fit:");
  for (const Advice& each : report.advice) {
    const ChangedPlan& changed = each.changed;
    const std::string keys = advice_keys(report, each);
    html += fmt::format(
        "<li><code>{}</code>: {} tokens/s a GPU, {} a GPU; {}</li>\n",
        escaped(keys), format_count(changed.plan.tokens_per_s_per_gpu),
        format_gib(changed.plan.memory.reserved_bytes),
        escaped(changed.change.why));
  }
  return html + "</ul>\n";
}

std::string report_html(const PlanReport& report) {
  const double needed = report.plan.memory.reserved_bytes;
  std::string html =
      fmt::format("<h2>{}</h2>\n<p>{}<br>{}<br><code>{}</code></p>\n",
                  escaped(report.name.empty() ? "Plan" : report.name),
                  escaped(describe_model(report.request.model)),
                  escaped(describe_cluster(report.request.cluster)),
                  escaped(describe_settings(report.request)));
  html += fmt::format(
      "<p{}>{}: {} a GPU of {}.</p>\n", report.plan.fits ? "" : " class=\"no\"",
      report.plan.fits ? "Fits" : "Does not fit", format_gib(needed),
      format_gib(report.request.cluster.gpu.memory_bytes));
  for (const std::string& note : report.notes) {
    html += fmt::format("<p>Note: {}</p>\n", escaped(note));
  }
  return html + "<h3>Memory over the last microbatch</h3>\n" +
         memory_chart(report) + "<h3>Streams of the last microbatch</h3>\n" +
         stream_chart(report) + "<h3>Time</h3>\n" + time_html(report) +
         "<h3>What limits it</h3>\n" + advice_html(report);
}

}  // namespace

std::string to_html(const std::string& title, const TableRows& table,
                    std::span<const PlanReport> reports) {
  std::string html(kHead);
  html += fmt::format("<title>{0}</title></head><body>\n<h1>{0}</h1>\n{1}",
                      escaped(title), table_html(table));
  for (const PlanReport& report : reports) {
    html += report_html(report);
  }
  return html + "</body></html>\n";
}

}  // namespace accordion::plan
