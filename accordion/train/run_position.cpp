// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_position.h"

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_reader.h"

namespace accordion {
namespace {

constexpr const char* kStep = "trainer/step";
constexpr const char* kSamples = "trainer/samples";
constexpr const char* kElapsed = "trainer/elapsed_seconds";
constexpr const char* kSkippedSteps = "trainer/skipped_steps";
constexpr const char* kSkipped = "trainer/skipped";
constexpr const char* kRollbacks = "trainer/rollbacks";
constexpr const char* kMeanLoss = "trainer/mean_loss";
constexpr const char* kNumLosses = "trainer/num_losses";
constexpr const char* kPreviousNorm = "trainer/previous_norm";
constexpr const char* kLossScale = "trainer/loss_scale";
constexpr const char* kScaleSteps = "trainer/loss_scale_steps";
constexpr const char* kOverflows = "trainer/overflows";
constexpr const char* kAllOverflows = "trainer/all_overflows";

/// A number of that type, not negative.
template <class Number>
Number number_of(const CheckpointIndex& index, const char* name,
                 const std::string& place) {
  const auto found = index.values.find(name);
  if (found == index.values.end() ||
      !std::holds_alternative<Number>(found->second) ||
      std::get<Number>(found->second) < 0) {
    throw CheckpointError(fmt::format(
        "[train] '{}' says nothing of how far a run has come: value '{}' is "
        "missing or not a number of 0 or more. Only checkpoints of `accordion "
        "train` can be resumed; use model.init for weights alone.",
        place, name));
  }
  return std::get<Number>(found->second);
}

std::optional<GradScalerState> scaler_state(const CheckpointIndex& index,
                                            const std::string& place) {
  if (!index.values.contains(kLossScale)) {
    return std::nullopt;
  }
  return GradScalerState{
      .scale = number_of<double>(index, kLossScale, place),
      .finite_steps = number_of<std::int64_t>(index, kScaleSteps, place),
      .skips_in_row = number_of<std::int64_t>(index, kOverflows, place),
      .skipped_steps = number_of<std::int64_t>(index, kAllOverflows, place)};
}

}  // namespace

const std::string* text_value(const CheckpointValues& values,
                              std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr
                               : std::get_if<std::string>(&found->second);
}

void add_to(CheckpointValues& values, const RunPosition& position) {
  values[kStep] = position.step;
  values[kSamples] = position.samples;
  values[kElapsed] = position.elapsed_seconds;
  values[kSkipped] = position.guard.skipped;
  values[kRollbacks] = position.guard.rollbacks;
  values[kMeanLoss] = position.guard.mean_loss;
  values[kNumLosses] = position.guard.num_losses;
  values[kSkippedSteps] = position.skipped_steps;
  if (position.previous_norm) {
    values[kPreviousNorm] = *position.previous_norm;
  }
  if (const auto& scaler = position.scaler) {
    values[kLossScale] = scaler->scale;
    values[kScaleSteps] = scaler->finite_steps;
    values[kOverflows] = scaler->skips_in_row;
    values[kAllOverflows] = scaler->skipped_steps;
  }
}

RunPosition read_run_position(const std::filesystem::path& checkpoint) {
  return run_position(CheckpointReader(checkpoint).index(),
                      checkpoint.string());
}

RunPosition run_position(const CheckpointIndex& index,
                         const std::string& place) {
  std::optional<double> previous_norm;
  if (index.values.contains(kPreviousNorm)) {
    previous_norm = number_of<double>(index, kPreviousNorm, place);
  }
  return {
      .step = number_of<std::int64_t>(index, kStep, place),
      .samples = number_of<std::int64_t>(index, kSamples, place),
      .elapsed_seconds = number_of<double>(index, kElapsed, place),
      .skipped_steps = number_of<std::int64_t>(index, kSkippedSteps, place),
      .guard = {.skipped = number_of<std::int64_t>(index, kSkipped, place),
                .rollbacks = number_of<std::int64_t>(index, kRollbacks, place),
                .mean_loss = number_of<double>(index, kMeanLoss, place),
                .num_losses =
                    number_of<std::int64_t>(index, kNumLosses, place)},
      .previous_norm = previous_norm,
      .scaler = scaler_state(index, place)};
}

}  // namespace accordion
