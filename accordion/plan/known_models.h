// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "accordion/plan/model_shape.h"

namespace accordion::plan {

/// The shape of a model by its usual name, "Llama 3.1 8B" or "llama-2-70b", as
/// in the config.json that it was published with; none if it is not known.
[[nodiscard]] std::optional<ModelShape> known_model(std::string_view name);

/// The names of all that are known.
[[nodiscard]] std::vector<std::string_view> known_model_names();

}  // namespace accordion::plan
