// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/text_file.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion::plan {

std::string read_text(const std::string& path, std::string_view caller) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(
        fmt::format("{} '{}' cannot be read.", caller, path));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

nlohmann::json read_json(const std::string& path, std::string_view caller) {
  nlohmann::json value =
      nlohmann::json::parse(read_text(path, caller), nullptr, false);
  if (value.is_discarded()) {
    throw std::invalid_argument(
        fmt::format("{} '{}' is not JSON.", caller, path));
  }
  return value;
}

}  // namespace accordion::plan
