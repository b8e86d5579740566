// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include "accordion/fsdp/step_trace_text.h"
#include "accordion/train/evaluation.h"
#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

using Clock = std::chrono::steady_clock;

/// Steps at the start that are left out of the median: the first records the
/// schedule, the next ones fill caches.
constexpr std::size_t kWarmupSteps = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TrainingRun::TrainingRun(const TrainConfig& config, const DeviceMesh& mesh,
                         const LlamaConfig& model, const Tokenizer& tokenizer,
                         RunData data, const RunStart& start)
    : config_(config),
      tokenizer_(tokenizer),
      world_(mesh.world()),
      data_(std::move(data)),
      folder_(start.folder),
      report_({.folder = start.folder,
               .rank = mesh.rank(),
               .log_every = config.log.every}),
      step_(config, mesh, model, data_),
      trace_(std::make_shared<StepTrace>()),
      checkpoints_({.config = config,
                    .folder = start.folder,
                    .model = step_.model().module(),
                    .optimizer = step_.optimizer(),
                    .report = report_}),
      elapsed_before_(start.position.elapsed_seconds),
      elapsed_seconds_(elapsed_before_),
      first_step_(start.position.step),
      steps_done_(first_step_) {
  report_.log(fmt::format("rank {} of {}, process {}, {} threads, backend {}",
                          world_.rank(), world_.world_size(), ::getpid(),
                          at::get_num_threads(), world_.backend()));
  report_.note(fmt::format("{:.2f}M parameters over {} ranks; run folder {}",
                           static_cast<double>(model.numel()) / 1e6,
                           world_.world_size(), folder_.string()));
  report_.note(describe(data_, config_));
  const std::vector<std::string> offloaded = step_.offloaded().describe();
  if (!offloaded.empty()) {
    report_.note("what is offloaded, and how, is in the ranks' logs");
    std::ranges::for_each(
        offloaded, [this](const std::string& line) { report_.log(line); });
  }
  if (!start.checkpoint.empty()) {
    checkpoints_.load(start.checkpoint, first_step_);
    go_on_from(start.position);
    report_.note(fmt::format("resumed at step {} from {}", first_step_,
                             start.checkpoint.string()));
  }
}

RunSummary TrainingRun::execute() {
  start_ = Clock::now();
  step_.set_trace(trace_);
  try {
    take_steps();
  } catch (const std::exception& error) {
    log_failure(error);
    throw;
  }
  RunSummary summary = summarize();
  print_sample();
  report_.note(fmt::format("Run folder: {}", folder_.string()));
  return summary;
}

void TrainingRun::take_steps() {
  for (std::int64_t step = first_step_; !finished(step); ++step) {
    const LocalStep local = step_.run(step, elapsed_seconds_);
    if (local.judgement.verdict == StepGuard::Verdict::RollBack) {
      step = roll_back(step, local.judgement.fault) - 1;
      continue;
    }
    const StepMetrics metrics = agree(step, local);
    if (metrics.skipped) {
      report_.log(local.judgement.fault + "; skipped");
    }
    report_.step(metrics,
                 {.total_steps = config_.train.steps,
                  .rss_mib = step_.memory().last_rss_mib(),
                  .held_bytes = step_.tracker().now().total(),
                  .peak_bytes = step_.tracker().peak().highest().total(),
                  .seconds_left = seconds_left(step)});
    if (config_.eval.every > 0 && (step + 1) % config_.eval.every == 0) {
      validate(step);
    }
    checkpoints_.after_step(position_after(step));
  }
  const std::int64_t last = steps_done_ - 1;
  if (config_.eval.every > 0 &&
      (!last_validation_ || last_validation_->step != last)) {
    validate(last);
  }
  checkpoints_.finish(position_after(last));
}

/// What decides about steps, and was decided, as it was there.
void TrainingRun::go_on_from(const RunPosition& position) {
  step_.continue_from(position);
  skipped_steps_ = position.skipped_steps;
}

/// Goes back to the newest checkpoint, and on with the samples behind those of
/// the step that went wrong. Returns the step to go on with.
std::int64_t TrainingRun::roll_back(std::int64_t step,
                                    const std::string& fault) {
  const std::filesystem::path checkpoint = checkpoints_.newest();
  if (checkpoint.empty()) {
    throw std::runtime_error(fmt::format(
        "[train] {}. There is no checkpoint yet to go back to: lower "
        "checkpoint.every (now {}).",
        fault, config_.checkpoint.every));
  }
  const std::int64_t samples = data_.sampler.samples_before(step + 1);
  RunPosition position = read_run_position(checkpoint);
  checkpoints_.load(checkpoint, position.step);
  data_.sampler.continue_from(position.step, samples);
  position.guard.rollbacks = step_.guard().memory().rollbacks;
  go_on_from(position);
  report_.forget_from(position.step);
  report_.log(fault);
  report_.note(fmt::format("{}. Back to step {}, on with the next samples.",
                           fault, position.step));
  return position.step;
}

void TrainingRun::log_failure(const std::exception& error) {
  constexpr std::size_t kActions = 32;
  report_.log(error.what());
  report_.log("what this rank did last, from the beginning of its step on:");
  for (const std::string& line :
       last_actions(step_.model().module(), *trace_, kActions)) {
    report_.log(line);
  }
}

RunPosition TrainingRun::position_after(std::int64_t step) {
  RunPosition position{.step = step + 1,
                       .samples = data_.sampler.samples_before(step + 1),
                       .elapsed_seconds = elapsed_seconds_,
                       .skipped_steps = skipped_steps_};
  step_.add_to(position);
  return position;
}

/// Compares notes after a step: the loss of all ranks, the clock of rank 0, and
/// whether any rank was told to stop, so that all stop after the same step.
StepMetrics TrainingRun::agree(std::int64_t step, const LocalStep& local) {
  const double clock =
      world_.rank() == 0 ? elapsed_before_ + seconds_since(start_) : 0.0;
  const std::vector<double> sums = sum_over_ranks(
      world_, std::vector{local.loss, stop_.raised() ? 1.0 : 0.0, clock},
      "loss of the step");
  stopped_ = sums[1] > 0;
  elapsed_seconds_ = sums[2];
  last_loss_ = sums[0] / world_.world_size();
  steps_done_ = step + 1;
  step_ms_.push_back(local.ms);
  const bool skipped = local.judgement.verdict == StepGuard::Verdict::Skip;
  skipped_steps_ += skipped ? 1 : 0;
  if (!std::isfinite(last_loss_) && config_.train.nonfinite == "error") {
    throw std::runtime_error(fmt::format(
        "[train] The loss is {} at step {}. Lower optimizer.lr (now {}), "
        "lengthen schedule.warmup_steps, or use fsdp.param_dtype = \"fp32\".",
        last_loss_, step, local.lr));
  }
  const auto tokens =
      static_cast<double>(tokens_per_rank(config_) * world_.world_size());
  const EpochPosition at = data_.sampler.epoch_of(step);
  const double in_epoch =
      static_cast<double>(at.sample) /
      static_cast<double>(data_.sampler.samples_per_epoch());
  return {.step = step,
          .epoch = static_cast<double>(at.epoch) + in_epoch,
          .loss = last_loss_,
          .grad_norm = local.grad_norm,
          .lr = local.lr,
          .ms = local.ms,
          .tokens_per_s = tokens / local.ms * 1e3,
          .skipped = skipped,
          .loss_scale = local.loss_scale,
          .offload = offload_metrics(world_, local.offload),
          .memory = local.memory};
}

double TrainingRun::seconds_left(std::int64_t step) const {
  double left = std::numeric_limits<double>::infinity();
  if (config_.train.seconds > 0) {
    left = config_.train.seconds - elapsed_seconds_;
  }
  if (config_.train.steps > 0) {
    const auto remaining = static_cast<double>(config_.train.steps - step - 1);
    const double each = (elapsed_seconds_ - elapsed_before_) /
                        static_cast<double>(step + 1 - first_step_);
    left = std::min(left, remaining * each);
  }
  return left;
}

bool TrainingRun::finished(std::int64_t next_step) const {
  const bool all_steps =
      config_.train.steps > 0 && next_step >= config_.train.steps;
  const bool all_time =
      config_.train.seconds > 0 && elapsed_seconds_ >= config_.train.seconds;
  return all_steps || all_time || stopped_;
}

void TrainingRun::validate(std::int64_t step) {
  const at::NoGradGuard no_grad;
  const MemoryPhaseScope phase(step_.tracker(), MemoryPhase::Forward);
  double loss = 0.0;
  double correct = 0.0;
  double tokens = 0.0;
  for (const Batch& batch : data_.validation) {
    const auto result = step_.model().loss(batch, 1.0);
    loss += result.loss.item<double>();
    correct += static_cast<double>(result.correct.item<std::int64_t>());
    tokens += static_cast<double>(batch.num_targets());
  }
  const auto sums =
      sum_over_ranks(world_, std::vector{loss, correct, tokens}, "validation");
  if (sums[2] == 0) {
    throw std::runtime_error(
        "[train] The held-out documents have no target: each is one token. "
        "Check data.document_separator and data.eos_token, or raise "
        "data.validation_fraction.");
  }
  last_validation_ = ValidationMetrics{
      .step = step, .loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2]};
  report_.validation(*last_validation_);
}

RunSummary TrainingRun::summarize() {
  step_.memory().sample();
  const auto rss =
      gather_over_ranks(world_, step_.memory().peaks().rss_mib, "peak memory");
  const auto pss =
      gather_over_ranks(world_, step_.memory().peaks().pss_mib, "peak memory");
  if (step_ms_.size() > kWarmupSteps) {
    step_ms_.erase(step_ms_.begin(), step_ms_.begin() + kWarmupSteps);
  }
  RunSummary summary;
  summary.steps = steps_done_;
  summary.world_size = world_.world_size();
  summary.final_loss = last_loss_;
  summary.skipped_steps = skipped_steps_;
  summary.step_ms_median = median(step_ms_);
  summary.tokens_per_s =
      static_cast<double>(tokens_per_rank(config_) * world_.world_size()) /
      summary.step_ms_median * 1e3;
  summary.validation = last_validation_;
  summary.interrupted = stopped_;
  for (std::size_t rank = 0; rank < rss.size(); ++rank) {
    summary.memory.push_back({rss[rank], pss[rank]});
  }
  summary.held = memory_of_ranks(world_, held());
  report_.summary(summary);
  return summary;
}

RankMemory TrainingRun::held() {
  MemoryTracker& tracker = step_.tracker();
  (void)tracker.take_peak();
  const double now = static_cast<double>(tracker.now().total()) / (1 << 20);
  return {.peak = tracker.peak(),
          .outside_mib = step_.memory().last_pss_mib() - now};
}

void TrainingRun::print_sample() {
  if (config_.sample.prompt.empty() || stopped_) {
    return;
  }
  const std::string text = step_.model().sample(config_, tokenizer_);
  report_.note(fmt::format("\n{}\n", text));
}

}  // namespace accordion
