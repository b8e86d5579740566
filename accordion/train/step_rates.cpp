// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/step_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ops/randint.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/grad_scaler.h"
#include "accordion/train/metrics.h"
#include "accordion/train/optimizer_options.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/training_model.h"

namespace accordion {
namespace {

constexpr int kWarmup = 2;
constexpr int kLeastSteps = 3;
constexpr int kMostSteps = 50;
constexpr double kSecondsPerMs = 1e-3;

/// The parts of StepRates that a step's breakdown has.
struct Part {
  double StepBreakdown::*ms;
  double StepRates::*seconds;
};
constexpr std::array kParts = {
    Part{&StepBreakdown::compute, &StepRates::compute},
    Part{&StepBreakdown::gather, &StepRates::gather},
    Part{&StepBreakdown::reduce, &StepRates::reduce},
    Part{&StepBreakdown::optimizer, &StepRates::optimizer},
};

class Steps {
 public:
  Steps(const TrainConfig& config, const LlamaConfig& model,
        const DeviceMesh& mesh)
      : world_(mesh.world()),
        clip_norm_(config.optimizer.clip_norm),
        tokens_(at::randint(model.vocab_size,
                            {config.train.batch_size, config.data.seq_len},
                            at::kLong)),
        model_(model, config, mesh),
        optimizer_(model_.module(), adamw_options(config)) {
    set_step_trace(model_.module(), trace_);
    // Without it gradients are subnormal, which processors take longer for.
    if (config.fsdp.param_dtype == "fp16") {
      scaler_.emplace(model_.module(), grad_scaler_options(config));
    }
  }

  StepBreakdown take() {
    world_.barrier("measured step");
    trace_->begin_step();
    const at::Tensor loss =
        model_.loss(tokens_, tokens_, static_cast<double>(tokens_.numel()))
            .loss;
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    update();
    trace_->end_step();
    return break_down(*trace_);
  }

  /// As many as take `seconds`, the same number on every rank.
  int count(double seconds) {
    const double one = agreed(take().total * kSecondsPerMs);
    return std::clamp(static_cast<int>(seconds / one), kLeastSteps, kMostSteps);
  }

  double agreed(double value) {
    return sum_over_ranks(world_, std::vector{value}, "measured step")[0] /
           world_.world_size();
  }

  void add_bytes(StepRates& rates) {
    const StepSchedule schedule = step_schedule(model_.module());
    for (const Action& action : schedule.actions) {
      const ScheduledUnit& unit =
          schedule.units[static_cast<std::size_t>(action.unit)];
      if (action.kind == ActionKind::Unshard) {
        rates.gathered_bytes += static_cast<double>(unit.unsharded_bytes);
      } else if (action.kind == ActionKind::Reduce) {
        rates.reduced_bytes += static_cast<double>(unit.gradient_bytes);
      }
    }
  }

 private:
  void update() {
    const TraceScope span(trace_.get(), SpanKind::Optimizer);
    if (scaler_) {
      const double norm = scaler_->reduced_grad_norm();
      scaler_->step(optimizer_, clip_coefficient(norm, clip_norm_));
      scaler_->update();
    } else {
      const double norm = reduced_grad_norm(model_.module());
      optimizer_.step(clip_coefficient(norm, clip_norm_));
    }
    optimizer_.zero_grad();
  }

  Communicator& world_;
  double clip_norm_;
  at::Tensor tokens_;
  std::shared_ptr<StepTrace> trace_ = std::make_shared<StepTrace>();
  TrainingModel model_;
  AdamW optimizer_;
  std::optional<GradScaler> scaler_;
};

}  // namespace

StepRates measure_steps(const TrainConfig& config, const LlamaConfig& model,
                        const DeviceMesh& mesh, double seconds) {
  Steps steps(config, model, mesh);
  for (int i = 0; i < kWarmup - 1; ++i) {
    (void)steps.take();
  }
  const int count = steps.count(seconds);
  std::vector<StepBreakdown> taken;
  for (int i = 0; i < count; ++i) {
    taken.push_back(steps.take());
  }
  StepRates rates;
  for (const Part& part : kParts) {
    std::vector<double> ms;
    for (const StepBreakdown& step : taken) {
      ms.push_back(step.*part.ms);
    }
    rates.*part.seconds = steps.agreed(median(ms) * kSecondsPerMs);
  }
  steps.add_bytes(rates);
  return rates;
}

}  // namespace accordion
