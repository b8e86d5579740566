// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/explain/explain.h"

#include <array>

#include <fmt/format.h>

#include "accordion/plan/explain/explanations.h"
#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

struct Entry {
  std::string_view name;
  Explanation (*make)();
};

constexpr std::array<Entry, 13> kEntries = {{
    {"zero", detail::explain_zero},
    {"bytes-per-parameter", detail::explain_bytes_per_parameter},
    {"llama-70b", detail::explain_llama_70b},
    {"70b-on-8xa100", detail::explain_70b_on_a100},
    {"1b", detail::explain_1b},
    {"10b", detail::explain_10b},
    {"gpt-3", detail::explain_gpt3},
    {"llama-65b", detail::explain_llama_65b},
    {"units", detail::explain_units},
    {"checkpointing", detail::explain_checkpointing},
    {"batch-size", detail::explain_batch_size},
    {"interconnect", detail::explain_interconnect},
    {"communication", detail::explain_communication},
}};

/// Four digits, and no exponent for what people read.
std::string number(double value, const std::string& unit) {
  const int digits = value >= 100.0 ? 1 : value >= 1.0 ? 2 : 3;
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return unit.empty() ? text : text + " " + unit;
}

}  // namespace

namespace detail {

double gigabytes(double params, double bytes, int ranks) {
  return params * bytes / ranks / 1e9;
}

}  // namespace detail

std::vector<std::string_view> explanation_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) {
    names.push_back(entry.name);
  }
  return names;
}

Explanation explain(std::string_view name) {
  const Entry& entry = find_named(kEntries, name, "[explain]");
  Explanation explanation = entry.make();
  explanation.name = entry.name;
  return explanation;
}

std::string to_text(const Explanation& explanation) {
  std::string text = fmt::format("{}\nSource: {}\nGB are 1e9 bytes.\n\n",
                                 explanation.title, explanation.source);
  text += fmt::format("  {:<46} {:>14} {:>14}  {}\n", "", "computed",
                      "source says", "counting");
  for (const Figure& figure : explanation.figures) {
    text += fmt::format(
        "  {:<46} {:>14} {:>14}  {}\n", figure.what,
        number(figure.value, figure.unit),
        figure.stated ? number(*figure.stated, figure.unit) : std::string("-"),
        figure.accounting);
  }
  text += "\n";
  for (const std::string& conclusion : explanation.conclusions) {
    text += conclusion + "\n";
  }
  return text;
}

}  // namespace accordion::plan
