// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/saved_state.h"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace accordion::detail {

namespace {

constexpr std::string_view kOptimizer = "optimizer/";

/// FIELD and FQN of "optimizer/FIELD/FQN".
std::pair<std::string, std::string> split_name(std::string_view name) {
  name.remove_prefix(kOptimizer.size());
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) {
    return {};
  }
  return {std::string(name.substr(0, slash)),
          std::string(name.substr(slash + 1))};
}

}  // namespace

SavedStates::SavedStates(const CheckpointReader& reader) : reader_(reader) {
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (name.starts_with(kOptimizer)) {
      const auto [field, parameter] = split_name(name);
      states_[parameter].fields.emplace(field, name);
    }
  }
  for (const auto& [name, value] : reader.index().values) {
    if (name.starts_with(kOptimizer) &&
        std::holds_alternative<std::int64_t>(value)) {
      const auto [count, parameter] = split_name(name);
      states_[parameter].counts.emplace(count, std::get<std::int64_t>(value));
    }
  }
}

const SavedState* SavedStates::find(const std::string& parameter) const {
  auto found = states_.find(parameter);
  if (found == states_.end()) {
    const auto alias = reader_.index().aliases.find(parameter);
    if (alias != reader_.index().aliases.end()) {
      found = states_.find(alias->second);
    }
  }
  return found == states_.end() ? nullptr : &found->second;
}

void SavedStates::check_fields(const LocalParameter& parameter,
                               const SavedState& saved,
                               OptimizerStateAccess& optimizer) const {
  std::vector<std::string> fields;
  for (const auto& [field, name] : saved.fields) {
    fields.push_back(field);
  }
  const auto kept = optimizer.fields(parameter);
  if (fields == kept) {
    return;
  }
  const auto type = reader_.index().values.find("optimizer/type");
  const auto* const text = type == reader_.index().values.end()
                               ? nullptr
                               : std::get_if<std::string>(&type->second);
  throw CheckpointError(fmt::format(
      "[load_checkpoint] '{}', parameter '{}': {} saved the fields [{}], but "
      "{} with its options keeps [{}]. Use the optimizer and options that it "
      "was saved with, or load the model alone.",
      reader_.folder().string(), parameter.name,
      text == nullptr ? "the optimizer" : *text, fmt::join(fields, ", "),
      optimizer.type(), fmt::join(kept, ", ")));
}

}  // namespace accordion::detail
