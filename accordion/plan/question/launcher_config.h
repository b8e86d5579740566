// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accordion::plan {

/// What a launcher's settings say, in keys of the planner.
struct LauncherConfig {
  std::vector<std::string> keys;   ///< KEY=VALUE, see plan_keys.h
  std::vector<std::string> notes;  ///< what has no meaning here, in sentences

  template <typename Value>
  void set(std::string_view key, const Value& value) {
    keys.push_back(fmt::format("{}={}", key, value));
  }
};

/// The values of nested settings by their dotted path; what nobody takes has no
/// meaning for a plan.
class LauncherValues {
 public:
  /// `prefix` begins messages: "[deepspeed] file.json: ".
  LauncherValues(const nlohmann::json& settings, std::string prefix);

  /// The value at a path, which counts as read; none for what is missing, null
  /// or "auto" (a launcher fills that in later).
  std::optional<nlohmann::json> take(const std::string& path);

  /// The same of one type. Throws std::invalid_argument that names the path.
  std::optional<bool> take_bool(const std::string& path);
  std::optional<std::int64_t> take_count(const std::string& path);
  std::optional<std::string> take_text(const std::string& path);

  /// The place of a text among those allowed, whatever its case.
  std::optional<std::size_t> take_choice(
      const std::string& path, const std::vector<std::string_view>& choices);

  /// Whether a value that was taken was "auto".
  [[nodiscard]] bool is_automatic(const std::string& path) const;

  /// Sentences that name the paths nobody took, and those left to "auto".
  [[nodiscard]] std::vector<std::string> notes() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  void add(const std::string& path, const nlohmann::json& value);

  std::map<std::string, nlohmann::json> values_;
  std::vector<std::string> automatic_;
  std::string prefix_;
};

}  // namespace accordion::plan
