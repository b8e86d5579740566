// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/optim/grad_scaler_state.h"
#include "accordion/train/step_guard.h"

namespace accordion {

/// How far a run has come: what a checkpoint says of it besides tensors.
struct RunPosition {
  std::int64_t step = 0;     ///< steps done; the number of the next one
  std::int64_t samples = 0;  ///< read by all ranks together
  double elapsed_seconds = 0.0;
  std::int64_t skipped_steps = 0;
  StepGuard::Memory guard = {};
  /// By which the next step is clipped, where steps are taken in backward.
  std::optional<double> previous_norm = std::nullopt;
  /// Of a run in fp16.
  std::optional<GradScalerState> scaler = std::nullopt;

  bool operator==(const RunPosition&) const = default;
};

/// Texts that a checkpoint of a run holds: its configuration, as TOML, and that
/// of its model.
inline constexpr const char* kConfigText = "trainer/config";
inline constexpr const char* kModelConfigText = "model/config.json";
/// The text of that name; null where there is none.
const std::string* text_value(const CheckpointValues& values,
                              std::string_view name);

/// As values of a checkpoint, and back; `place` stands for it in errors.
///
/// Throws CheckpointError where one is missing, of another type or negative
void add_to(CheckpointValues& values, const RunPosition& position);
RunPosition read_run_position(const std::filesystem::path& checkpoint);
RunPosition run_position(const CheckpointIndex& index,
                         const std::string& place);

}  // namespace accordion
