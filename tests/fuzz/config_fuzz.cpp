// SPDX-License-Identifier: BSD-3-Clause
// A configuration of any text, and overrides behind a NUL each, are refused
// with std::invalid_argument, or read back the same when they are printed.
#include <stdexcept>
#include <string>
#include <vector>

#include "accordion/train/train_config.h"
#include "tests/fuzz/fuzz_support.h"

using accordion::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  for (auto nul = text.rfind('\0'); nul != std::string::npos;
       nul = text.rfind('\0')) {
    overrides.push_back(text.substr(nul + 1));
    text.resize(nul);
  }
  accordion::TrainConfig config;
  try {
    config = accordion::parse_config(text, "/run/config.toml", overrides);
  } catch (const std::invalid_argument&) {
    return 0;  // as documented
  }
  const std::string printed = to_toml(config);
  require(to_toml(accordion::parse_config(printed, "/other/config.toml")) ==
          printed);
  return 0;
}
