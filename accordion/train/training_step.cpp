// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/training_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "accordion/fsdp/controls.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/train/config_options.h"
#include "accordion/train/memory_advice.h"
#include "accordion/train/optimizer_options.h"
#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

/// Shared-page-aware memory costs milliseconds to read: at steps 1, 2, 4, 8, …
bool samples_pss(std::int64_t step) {
  return step > 0 && (step & (step - 1)) == 0;
}

static_assert(kNoTarget == ops::kIgnoredTarget);

}  // namespace

TrainingStep::TrainingStep(const TrainConfig& config, const DeviceMesh& mesh,
                           const LlamaConfig& model, const RunData& data)
    : config_(config),
      data_(data),
      mesh_(mesh),
      world_(mesh.world()),
      shape_(model),
      model_(model, config, mesh),
      optimizer_(model_.module(), adamw_options(config)),
      offloaded_(model_.module(), optimizer_),
      schedule_(lr_schedule(config)),
      guard_(config) {
  if (config.fsdp.param_dtype == "fp16") {
    scaler_.emplace(model_.module(), grad_scaler_options(config));
  }
  if (config.memory.optimizer_in_backward) {
    stepper_ = std::make_unique<StepInBackward>(
        model_.module(), optimizer_, step_in_backward_options(config));
  }
  watch_memory();
}

void TrainingStep::watch_memory() {
  const bool offloads = config_.memory.offload != "none";
  const auto held = [this] { return optimizer_.held_bytes(); };
  tracker_.watch(model_.module(),
                 offloads
                     ? MemoryTracker::Sources{.optimizer_buffer_bytes = held}
                     : MemoryTracker::Sources{.optimizer_bytes = held});
  const std::int64_t limit = bytes_of_limit(config_.memory.limit).value();
  try {
    tracker_.set_limit(limit > 0 ? std::optional(limit) : std::nullopt);
  } catch (const MemoryError& error) {
    throw with_advice(error.facts());
  }
}

void TrainingStep::continue_from(const RunPosition& position) {
  guard_.set_memory(position.guard);
  if (stepper_) {
    stepper_->set_previous_norm(position.previous_norm);
  }
  // A run that was not in fp16 before begins with optimizer.loss_scale.
  if (scaler_ && position.scaler) {
    scaler_->set_state(*position.scaler);
  }
}

void TrainingStep::add_to(RunPosition& position) const {
  position.guard = guard_.memory();
  if (stepper_) {
    position.previous_norm = stepper_->previous_norm();
  }
  if (scaler_) {
    position.scaler = scaler_->state();
  }
}

LocalStep TrainingStep::run(std::int64_t step, double elapsed_seconds) {
  try {
    return take(step, elapsed_seconds);
  } catch (const MemoryError& error) {
    throw with_advice(error.facts());
  } catch (const std::bad_alloc& error) {
    MemoryError::Facts facts = tracker_.facts();
    facts.failure = error.what();
    throw with_advice(facts);
  }
}

MemoryError TrainingStep::with_advice(const MemoryError::Facts& facts) const {
  const bool shares_memory = mesh_.communicator("shard").shares_common_memory();
  return MemoryError(facts,
                     describe(memory_savings(config_, shape_, mesh_.axes(),
                                             shares_memory, facts.held)));
}

LocalStep TrainingStep::take(std::int64_t step, double elapsed_seconds) {
  LocalStep result;
  (void)tracker_.take_peak();  // of what happened between steps
  const double budget = config_.train.seconds;
  result.lr = learning_rate(schedule_, step,
                            budget > 0 ? elapsed_seconds / budget : 0.0);
  const auto start = std::chrono::steady_clock::now();
  const auto moved = offloaded_.counters();
  if (trace_) {
    (void)offloaded_.take_transfers();  // of the step before
    trace_->begin_step();
  }
  optimizer_.set_lr(result.lr);
  backward_of_microbatches(step, result);
  update(step, result);
  sample_memory(step);
  result.memory = tracker_.take_peak();
  if (trace_) {
    trace_->end_step();
  }
  result.ms = std::chrono::duration<double, std::milli>(
                  std::chrono::steady_clock::now() - start)
                  .count();
  if (moved) {
    result.offload = *offloaded_.counters();
    *result.offload -= *moved;
  }
  return result;
}

void TrainingStep::set_trace(std::shared_ptr<StepTrace> trace) {
  set_step_trace(model_.module(), trace);
  offloaded_.record_transfers(trace != nullptr);
  tracker_.set_trace(trace);
  trace_ = std::move(trace);
}

void TrainingStep::update(std::int64_t step, LocalStep& result) {
  const TraceScope span(trace_.get(), SpanKind::Optimizer);
  const MemoryPhaseScope phase(tracker_, MemoryPhase::Optimizer);
  result.grad_norm = grad_norm();
  result.judgement = judge(step, result);
  if (stepper_) {
    return;  // it was taken in backward
  }
  if (result.judgement.verdict == StepGuard::Verdict::Take) {
    const double clip_norm = config_.optimizer.clip_norm;
    const double clip =
        clip_norm > 0 ? clip_coefficient(result.grad_norm, clip_norm) : 1.0;
    optimizer_.step(scaler_ ? clip / result.loss_scale : clip);
  }
  optimizer_.zero_grad();
}

/// Of all gradients of the step, before clipping.
double TrainingStep::grad_norm() {
  if (stepper_) {
    const StepInBackward::Step step = stepper_->end_step();
    left_out_ = step.nonfinite_unit;
    return step.grad_norm;
  }
  return scaler_ ? scaler_->reduced_grad_norm()
                 : reduced_grad_norm(model_.module());
}

/// A gradient that is not finite while the loss is says that the loss scale is
/// too large; where the loss is not either, no scale would help.
StepGuard::Judgement TrainingStep::judge(std::int64_t step,
                                         const LocalStep& result) {
  const bool bad_gradient = scaler_ && scaler_->found_nonfinite();
  const double loss =
      guard_.watches_loss() || bad_gradient ? loss_of_all_ranks(result) : 0.0;
  if (bad_gradient && std::isfinite(loss)) {
    return skip_overflow(step);
  }
  if (scaler_ && !bad_gradient) {
    scaler_->update();
  }
  return guard_.judge(
      {.number = step, .grad_norm = result.grad_norm, .loss = loss},
      [&] { return describe_nonfinite(step); });
}

StepGuard::Judgement TrainingStep::skip_overflow(std::int64_t step) {
  const GradScalerState& state = scaler_->state();
  const std::string fault = fmt::format(
      "The gradient at step {} overflowed at loss scale {}", step, state.scale);
  if (scaler_->at_limit()) {
    throw std::runtime_error(fmt::format(
        "[train] {}, and the {} steps before were skipped for that "
        "(train.max_skips is {}, the smallest scale {}). Backward first met "
        "it in {}. Lower optimizer.lr (now {}), lengthen "
        "schedule.warmup_steps, or use fsdp.param_dtype = \"bf16\".",
        fault, state.skips_in_row, config_.train.max_skips,
        GradScalerOptions().min_scale, model_.first_nonfinite_gradient(),
        config_.optimizer.lr));
  }
  scaler_->update();
  return {StepGuard::Verdict::Skip, fault};
}

void TrainingStep::backward_of_microbatches(std::int64_t step,
                                            LocalStep& result) {
  result.loss_scale = scaler_ ? scaler_->state().scale : 0.0;
  std::vector<Batch> batches = batches_of(step);
  const double divisor = targets_per_rank(batches);
  std::vector<at::Tensor> losses;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    set_is_last_backward(model_.module(), i + 1 == batches.size());
    const MemoryPhaseScope forward(tracker_, MemoryPhase::Forward);
    const at::Tensor loss = model_.loss(std::move(batches[i]), divisor).loss;
    sample_memory(step);
    const MemoryPhaseScope backward(tracker_, MemoryPhase::Backward);
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    sample_memory(step);
    losses.push_back(loss.detach());
  }
  // Read once all is given to a device, so that it need not wait for the host.
  for (const at::Tensor& loss : losses) {
    result.loss += loss.item<double>();
  }
}

double TrainingStep::loss_of_all_ranks(const LocalStep& result) {
  const TraceScope span(trace_.get(), SpanKind::Other);
  return sum_over_ranks(world_, {{result.loss}}, "loss of the step")[0] /
         world_.world_size();
}

/// Runs the forward passes of the step once more, and looks at what units
/// return.
std::string TrainingStep::describe_nonfinite(std::int64_t step) {
  return model_.describe_nonfinite(
      [&] {
        const at::NoGradGuard no_grad;
        for (Batch& batch : batches_of(step)) {
          (void)model_.loss(std::move(batch), 1.0);
        }
      },
      left_out_);
}

std::vector<Batch> TrainingStep::batches_of(std::int64_t step) const {
  const TraceScope span(trace_.get(), SpanKind::Data);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < config_.train.grad_accumulation; ++i) {
    batches.push_back(data_.sampler.batch(step, i));
  }
  return batches;
}

/// Targets that count in a step, over the number of ranks: what makes the mean
/// over ranks, which reductions take, the mean over targets.
double TrainingStep::targets_per_rank(const std::vector<Batch>& batches) {
  if (!data_.corpus.training().masks_targets()) {
    return static_cast<double>(tokens_per_rank(config_));
  }
  const TraceScope span(trace_.get(), SpanKind::Other);
  double targets = 0.0;
  for (const Batch& batch : batches) {
    targets += static_cast<double>(batch.num_targets());
  }
  targets = sum_over_ranks(world_, {{targets}}, "targets of the step")[0];
  // A step of documents of one token has none: its loss and gradient are 0.
  return std::max(targets, 1.0) / world_.world_size();
}

void TrainingStep::sample_memory(std::int64_t step) {
  if (!samples_memory_) {
    return;
  }
  const TraceScope span(trace_.get(), SpanKind::Other);
  if (samples_pss(step)) {
    memory_.sample();
  } else {
    memory_.sample_rss();
  }
}

}  // namespace accordion
