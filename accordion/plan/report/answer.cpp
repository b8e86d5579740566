// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/answer.h"

#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/report/comparison.h"
#include "accordion/plan/report/plan_html.h"
#include "accordion/plan/report/plan_report.h"
#include "accordion/plan/report/units.h"
#include "accordion/plan/search/limits.h"
#include "accordion/plan/search/search.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

/// An answer in all its forms.
struct Answer {
  std::string text;
  json value;
  std::string title;
  TableRows table;
  std::vector<PlanReport> reports;
};

std::string lines(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) {
    text += "Note: " + note + "\n";
  }
  return text;
}

Answer plan_answer(const PlanInput& input, const TextStyle& style) {
  Answer result;
  result.reports = {make_report(make_question(input))};
  const PlanReport& report = result.reports.front();
  result.text = to_text(report, style);
  result.value = to_json(report);
  result.title = "Plan of " + describe_model(report.request.model);
  result.table = compared(result.reports);
  return result;
}

/// "KEY=VALUE,KEY=VALUE" on top of what was asked.
PlanInput with_list(PlanInput input, const std::string& list) {
  std::size_t begin = 0;
  while (begin < list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string assignment = list.substr(begin, end - begin);
    begin = end + 1;
    if (assignment.starts_with("cluster=")) {
      input.cluster = assignment.substr(8);
    } else if (assignment.starts_with("model=")) {
      input.model = assignment.substr(6);
      input.params = 0.0;
    } else {
      input.keys.push_back(assignment);
    }
  }
  return input;
}

Answer compare_answer(const PlanInput& input, const AnswerOptions& options) {
  Answer result;
  result.value = json::array();
  for (const std::string& list : options.compared) {
    PlanReport report = make_report(make_question(with_list(input, list)));
    report.name = list;
    result.value.push_back(to_json(report));
    result.reports.push_back(std::move(report));
  }
  result.title =
      "Comparison: " + describe_model(result.reports.front().request.model);
  result.table = compared(result.reports);
  result.text = lines(result.reports.front().notes) +
                describe_model(result.reports.front().request.model) + "\n" +
                describe_cluster(result.reports.front().request.cluster) +
                "\n\n" + to_text(result.table);
  return result;
}

json found_json(const std::vector<FoundPlan>& plans) {
  json all = json::array();
  for (const FoundPlan& found : plans) {
    const Plan& plan = found.plan;
    all.push_back({{"keys", found.keys},
                   {"tokens_per_s_per_gpu", plan.tokens_per_s_per_gpu},
                   {"mfu", plan.mfu},
                   {"step_s", plan.time.step_s},
                   {"exposed_s", plan.time.exposed_s()},
                   {"tokens_per_step", plan.tokens_per_step},
                   {"reserved_bytes", plan.memory.reserved_bytes}});
  }
  return all;
}

std::string search_text(const PlanQuestion& question, const SearchResult& found,
                        const TableRows& table) {
  std::string text = lines(question.notes) + describe_model(question.model) +
                     "\n" + describe_cluster(question.cluster) + "\n";
  text += fmt::format("{} plans examined, {} fit{}\n\n", found.num_examined,
                      found.num_fitting,
                      question.settings.batch_tokens > 0
                          ? fmt::format("; {} tokens a step",
                                        format_count(static_cast<double>(
                                            question.settings.batch_tokens)))
                          : std::string("; batch_tokens=N keeps the batch"));
  text += found.fastest.empty() ? "None fits. What needs least memory:\n" : "";
  return text + to_text(table);
}

Answer search_answer(const PlanInput& input) {
  const PlanQuestion question = make_question(input);
  const SearchResult found = search(question);
  const std::vector<FoundPlan>& shown =
      found.fastest.empty() ? found.smallest : found.fastest;
  Answer result;
  result.table = listed(shown);
  result.text = search_text(question, found, result.table);
  result.value = {{"examined", found.num_examined},
                  {"fitting", found.num_fitting},
                  {"fits", !found.fastest.empty()},
                  {"plans", found_json(shown)}};
  result.title = "Search: " + describe_model(question.model);
  if (!shown.empty()) {
    PlanQuestion best = question;
    best.settings.batch_tokens = 0;
    for (const std::string& key : shown.front().keys) {
      state_key(key, best);
    }
    result.reports = {make_report(best)};
  }
  return result;
}

json limit_json(const std::vector<Limit>& limits) {
  json all = json::array();
  for (const Limit& limit : limits) {
    json value = {{"keys", limit.keys}, {"fits", limit.request.has_value()}};
    if (limit.request) {
      value["num_params"] = limit.request->model.num_params();
      value["gpus"] = limit.request->cluster.num_gpus();
      value["reserved_bytes"] = limit.plan.memory.reserved_bytes;
      value["tokens_per_s_per_gpu"] = limit.plan.tokens_per_s_per_gpu;
      value["mfu"] = limit.plan.mfu;
    }
    all.push_back(std::move(value));
  }
  return all;
}

Answer limit_answer(const std::vector<Limit>& limits, const std::string& title,
                    const std::string& about) {
  Answer result;
  result.table = listed(limits);
  result.title = title;
  result.value = limit_json(limits);
  result.text = title + "\n" + about + "\n\n" + to_text(result.table);
  return result;
}

Answer max_model_answer(PlanInput input) {
  if (!input.model.empty() || input.params != 0.0) {
    throw std::invalid_argument(
        "[plan] --max-model looks for the model: name no MODEL and no "
        "--params.");
  }
  input.params = 1e9;  // takes the place of those that are tried
  PlanQuestion question = make_question(input);
  return limit_answer(max_model(question),
                      "The largest Llama that fits, by the rule of --params",
                      describe_cluster(question.cluster));
}

Answer min_gpus_answer(const PlanInput& input) {
  const PlanQuestion question = make_question(input);
  return limit_answer(
      min_gpus(question),
      fmt::format("The fewest {} that hold the model, in hosts of up to {}",
                  question.cluster.gpu.name, question.cluster.gpus_per_host),
      lines(question.notes) + describe_model(question.model));
}

Answer answer_of(const PlanInput& input, const AnswerOptions& options) {
  switch (options.kind) {
    case AnswerKind::Plan:
      return plan_answer(input, options.style);
    case AnswerKind::Search:
      return search_answer(input);
    case AnswerKind::Compare:
      return compare_answer(input, options);
    case AnswerKind::MaxModel:
      return max_model_answer(input);
    case AnswerKind::MinGpus:
      return min_gpus_answer(input);
  }
  return {};
}

void write_html(const std::string& path, const Answer& result) {
  std::ofstream file(path);
  file << to_html(result.title, result.table, result.reports) << std::flush;
  if (!file) {
    throw std::runtime_error(fmt::format(
        "[plan] '{}' cannot be written. Name a file in a folder that exists.",
        path));
  }
}

}  // namespace

std::string answer(const PlanInput& input, const AnswerOptions& options) {
  const Answer result = answer_of(input, options);
  if (!options.html_path.empty()) {
    write_html(options.html_path, result);
  }
  // Names of keys in a launcher's file need not be UTF-8.
  return options.json ? result.value.dump(2, ' ', false,
                                          json::error_handler_t::replace) +
                            "\n"
                      : result.text;
}

}  // namespace accordion::plan
