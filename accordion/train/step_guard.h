// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "accordion/train/train_config.h"

namespace accordion {

/// What becomes of a step that went wrong: of one whose gradient is infinite or
/// no number, as train.nonfinite says, and of one whose loss is far above those
/// before it, as train.spike says. Ranks that see the same numbers decide
/// alike.
class StepGuard {
 public:
  enum class Verdict { Take, Skip, RollBack };

  struct Judgement {
    Verdict verdict = Verdict::Take;
    std::string fault = {};  ///< of a step that is not taken
  };

  /// What is known of a step before the optimizer takes it.
  struct Step {
    std::int64_t number = 0;
    double grad_norm = 0.0;
    double loss = 0.0;  ///< the mean of all ranks; counts if watches_loss()
  };

  explicit StepGuard(const TrainConfig& config) : config_(config) {}

  /// Whether judge() wants to know the loss.
  [[nodiscard]] bool watches_loss() const;

  /// `why` says where the fault of a gradient is ("the first unit at fault is
  /// 'model.layers.3'"); it is not asked when the step is taken or skipped.
  ///
  /// Throws std::runtime_error under "error", and after train.max_skips skipped
  ///        steps in a row or train.max_rollbacks returns
  Judgement judge(const Step& step, const std::function<std::string()>& why);

  /// What it goes by besides the configuration: a run that is resumed goes on
  /// with it.
  struct Memory {
    std::int64_t skipped = 0;     ///< steps in a row
    std::int64_t rollbacks = 0;   ///< in the run
    double mean_loss = 0.0;       ///< running mean, towards zero at first
    std::int64_t num_losses = 0;  ///< that are in it

    bool operator==(const Memory&) const = default;
  };
  [[nodiscard]] const Memory& memory() const { return memory_; }
  void set_memory(const Memory& memory) { memory_ = memory; }

 private:
  Judgement act(const std::string& policy, const std::string& fault,
                const std::function<std::string()>& why);
  [[nodiscard]] bool is_spike(double loss) const;
  void remember(double loss);

  const TrainConfig& config_;
  Memory memory_;
};

}  // namespace accordion
