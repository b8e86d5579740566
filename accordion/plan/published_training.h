// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/software_stack.h"
#include "accordion/plan/strategy.h"
#include "accordion/plan/training.h"

namespace accordion::plan {
namespace detail {

/// A text of a row, normalized(); "" where there is none.
[[nodiscard]] std::string text_of(const nlohmann::json& row, const char* key);
/// A number of a row.
[[nodiscard]] int count_of(const nlohmann::json& object, const char* key,
                           int otherwise);
[[nodiscard]] bool contains(std::string_view text, std::string_view part);

}  // namespace detail

/// Batches, types, checkpointing and optimizer of a row of published runs;
/// what it leaves open is the software's default.
///
/// Throws std::invalid_argument that says what keeps it from being modelled
Training published_training(const nlohmann::json& row, const Strategy& strategy,
                            const SoftwareStack& stack);

}  // namespace accordion::plan
