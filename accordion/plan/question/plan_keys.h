// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accordion/plan/question/plan_settings.h"

namespace accordion::plan {

/// The member that a key sets. Enumerations are read by the place of the
/// value in PlanKey::choices.
using PlanField = std::variant<int*, std::int64_t*, double*, bool*, Sharding*,
                               SoftwareStack*, ComputeType*, OptimizerType*,
                               Checkpointing*, AttentionKind*, OffloadTo*>;

/// One KEY of KEY=VALUE.
struct PlanKey {
  std::string_view name;
  PlanField (*field)(PlanSettings&);
  std::string_view doc;
  std::vector<std::string_view> choices = {};
  std::string_view otherwise = {};  ///< the default in words, where not a value
};

[[nodiscard]] std::span<const PlanKey> plan_keys();

/// The value that a key has, as it is written behind it.
[[nodiscard]] std::string value_of(const PlanKey& key,
                                   const PlanSettings& settings);

/// Takes one KEY=VALUE over. Sizes are checked later, with the cluster.
///
/// Throws std::invalid_argument that names the key and the nearest one known,
///        or the value and the nearest that would do
void set_key(std::string_view assignment, PlanSettings& settings);

/// All keys with types, defaults and what they mean.
[[nodiscard]] std::string plan_keys_help();

}  // namespace accordion::plan
