// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/training_step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "accordion/fsdp/controls.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/train/config_options.h"
#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

/// Shared-page-aware memory costs milliseconds to read: at steps 1, 2, 4, 8, …
bool samples_pss(std::int64_t step) {
  return step > 0 && (step & (step - 1)) == 0;
}

AdamWOptions optimizer_options(const TrainConfig& config) {
  AdamWOptions options;
  options.lr = config.optimizer.lr;
  options.beta1 = config.optimizer.betas[0];
  options.beta2 = config.optimizer.betas[1];
  options.eps = config.optimizer.eps;
  options.weight_decay = config.optimizer.weight_decay;
  const bool decay_norms = config.optimizer.decay_norms;
  options.decays = [decay_norms](const LocalParameter& parameter) {
    return decay_norms || parameter.global_shape.size() > 1;
  };
  return options;
}

static_assert(kNoTarget == ops::kIgnoredTarget);

}  // namespace

TrainingStep::TrainingStep(const TrainConfig& config, const DeviceMesh& mesh,
                           const LlamaConfig& model, const RunData& data)
    : config_(config),
      data_(data),
      world_(mesh.world()),
      model_(model, config, mesh),
      optimizer_(model_.module(), optimizer_options(config)),
      schedule_(lr_schedule(config)),
      guard_(config) {}

LocalStep TrainingStep::run(std::int64_t step, double elapsed_seconds) {
  LocalStep result;
  const double budget = config_.train.seconds;
  result.lr = learning_rate(schedule_, step,
                            budget > 0 ? elapsed_seconds / budget : 0.0);
  const auto start = std::chrono::steady_clock::now();
  if (trace_) {
    trace_->begin_step();
  }
  backward_of_microbatches(step, result);
  update(step, result);
  sample_memory(step);
  if (trace_) {
    trace_->end_step();
  }
  result.ms = std::chrono::duration<double, std::milli>(
                  std::chrono::steady_clock::now() - start)
                  .count();
  return result;
}

void TrainingStep::set_trace(std::shared_ptr<StepTrace> trace) {
  set_step_trace(model_.module(), trace);
  trace_ = std::move(trace);
}

void TrainingStep::update(std::int64_t step, LocalStep& result) {
  const TraceScope span(trace_.get(), SpanKind::Optimizer);
  result.grad_norm = reduced_grad_norm(model_.module());
  const double loss = guard_.watches_loss() ? loss_of_all_ranks(result) : 0.0;
  result.judgement = guard_.judge(
      {.number = step, .grad_norm = result.grad_norm, .loss = loss},
      [&] { return describe_nonfinite(step); });
  if (result.judgement.verdict == StepGuard::Verdict::Take) {
    const double clip_norm = config_.optimizer.clip_norm;
    optimizer_.set_lr(result.lr);
    optimizer_.step(
        clip_norm > 0 ? clip_coefficient(result.grad_norm, clip_norm) : 1.0);
  }
  optimizer_.zero_grad();
}

void TrainingStep::backward_of_microbatches(std::int64_t step,
                                            LocalStep& result) {
  std::vector<Batch> batches = batches_of(step);
  const double divisor = targets_per_rank(batches);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    set_is_last_backward(model_.module(), i + 1 == batches.size());
    const at::Tensor loss = model_.loss(std::move(batches[i]), divisor).loss;
    sample_memory(step);
    loss.backward();
    sample_memory(step);
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
  return model_.describe_nonfinite([&] {
    const at::NoGradGuard no_grad;
    for (Batch& batch : batches_of(step)) {
      (void)model_.loss(std::move(batch), 1.0);
    }
  });
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
