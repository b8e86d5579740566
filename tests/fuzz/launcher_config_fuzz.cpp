// SPDX-License-Identifier: BSD-3-Clause
// Settings of DeepSpeed (behind a first byte 'd') or of Hugging Face (behind
// any other) are refused with std::invalid_argument, or give keys of which each
// is one that the planner has.
#include <stdexcept>
#include <string_view>

#include "accordion/plan/known_models.h"
#include "accordion/plan/question/accelerate_config.h"
#include "accordion/plan/question/deepspeed_config.h"
#include "accordion/plan/question/plan_keys.h"
#include "tests/fuzz/fuzz_support.h"

using accordion::testing::require;
namespace plan = accordion::plan;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  plan::LauncherConfig config;
  try {
    config = data[0] == 'd'
                 ? plan::deepspeed_config(text, "file",
                                          *plan::known_model("llama-2-7b"), 8)
                 : plan::accelerate_config(text, "file");
  } catch (const std::invalid_argument&) {
    return 0;  // as documented
  }
  plan::PlanSettings settings;
  for (const std::string& key : config.keys) {
    try {
      plan::set_key(key, settings);
    } catch (const std::invalid_argument& error) {
      // A size beyond what a key holds; the key itself is known.
      require(std::string_view(error.what()).find("Unknown key") ==
              std::string_view::npos);
    }
  }
  return 0;
}
