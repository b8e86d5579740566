// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/bench.h"

#include <sys/resource.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/memory_timeline.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace_json.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/config_options.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/metrics.h"
#include "accordion/train/plan_request.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_setup.h"
#include "accordion/train/training_step.h"

namespace accordion {
namespace {

std::int64_t page_faults_so_far() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

/// The steps of one rank, and what the ranks make of them together.
class Bench {
 public:
  Bench(const TrainConfig& config, const DeviceMesh& mesh,
        const LlamaConfig& model, const RunData& data)
      : world_(mesh.world()), step_(config, mesh, model, data) {}

  void run(std::int64_t steps) {
    const std::int64_t last = kBenchWarmupSteps + steps;
    for (std::int64_t step = 0; step < last; ++step) {
      if (step == kBenchWarmupSteps) {
        step_.stop_memory_samples();
        step_.set_trace(trace_);
      }
      step_.tracker().record(step + 1 == last);
      take(step);
    }
    step_.set_trace(nullptr);
  }

  /// Fills in what was measured.
  void summarize(BenchResult& result) {
    result.step_ms = step_ms_;
    result.losses = losses_;
    result.grad_norms = grad_norms_;
    result.breakdown = mean_breakdown();
    result.trace_json = trace_json();
    result.held = held_;
    const double faults =
        sum_over_ranks(world_, std::vector{median(faults_)}, "page faults")[0];
    result.page_faults = faults / world_.world_size();
    const MemoryUse& peaks = step_.memory().peaks();
    const auto rss = gather_over_ranks(world_, peaks.rss_mib, "peak memory");
    const auto pss = gather_over_ranks(world_, peaks.pss_mib, "peak memory");
    for (std::size_t rank = 0; rank < rss.size(); ++rank) {
      result.memory.push_back({rss[rank], pss[rank]});
    }
  }

 private:
  std::string trace_json() {
    const std::vector<ScheduledUnit> units =
        step_schedule(step_.model().module()).units;
    return to_trace_json(
        *trace_, units, world_.rank(),
        {.memory = memory_timeline(*trace_, step_.tracker().samples(), units),
         .transfers = step_.offloaded().take_transfers()});
  }

  void take(std::int64_t step) {
    const std::int64_t faults = page_faults_so_far();
    const LocalStep local = step_.run(step, /*elapsed_seconds=*/0);
    const std::int64_t faults_of_step = page_faults_so_far() - faults;
    // Outside of what is measured; ranks begin the next step together.
    const auto sums = sum_over_ranks(world_, std::vector{local.loss, local.ms},
                                     "loss of the step");
    held_ = local.memory;
    losses_.push_back(sums[0] / world_.world_size());
    grad_norms_.push_back(local.grad_norm);
    if (step >= kBenchWarmupSteps) {
      step_ms_.push_back(sums[1] / world_.world_size());
      faults_.push_back(static_cast<double>(faults_of_step));
      breakdowns_.push_back(break_down(*trace_));
    }
  }

  StepBreakdown mean_breakdown() {
    using B = StepBreakdown;
    constexpr std::array kParts = {
        &B::total,       &B::compute,   &B::gather, &B::gather_wait, &B::reduce,
        &B::reduce_wait, &B::optimizer, &B::data,   &B::other};
    std::vector<double> sums(kParts.size(), 0.0);
    for (const StepBreakdown& step : breakdowns_) {
      for (std::size_t i = 0; i < kParts.size(); ++i) {
        sums[i] += step.*kParts[i];
      }
    }
    sums = sum_over_ranks(world_, sums, "breakdown of the step");
    const double count = static_cast<double>(breakdowns_.size()) *
                         static_cast<double>(world_.world_size());
    StepBreakdown mean;
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      mean.*kParts[i] = sums[i] / count;
    }
    return mean;
  }

  Communicator& world_;
  TrainingStep step_;
  std::shared_ptr<StepTrace> trace_ = std::make_shared<StepTrace>();
  std::vector<double> step_ms_;
  std::vector<double> losses_;
  MemoryPeak held_;  // in the last step
  std::vector<double> grad_norms_;
  std::vector<double> faults_;
  std::vector<StepBreakdown> breakdowns_;
};

BenchResult described(const TrainConfig& config, const LlamaConfig& model,
                      Communicator& world) {
  BenchResult result;
  result.model = config.model.config;
  result.parameters = model.numel();
  result.flops_per_token = flops_per_token(model, config.data.seq_len);
  result.strategy = config.fsdp.strategy;
  result.param_dtype = config.fsdp.param_dtype;
  result.backend = world.backend();
  result.world_size = world.world_size();
  result.threads = at::get_num_threads();
  result.tokens_per_step = tokens_per_rank(config) * world.world_size();
  return result;
}

}  // namespace

double BenchResult::tokens_per_s() const {
  return static_cast<double>(tokens_per_step) / median(step_ms) * 1e3;
}

double BenchResult::flops_utilization() const {
  return tokens_per_s() * flops_per_token / machine.matmul_flops;
}

double flops_per_token(const LlamaConfig& model, std::int64_t seq_len) {
  const auto of = [](std::int64_t n) { return static_cast<double>(n); };
  const double heads_width = of(model.num_attention_heads * model.head_dim);
  const double kv_width = of(model.num_key_value_heads * model.head_dim);
  const double hidden = of(model.hidden_size);
  const double layer = 2 * hidden * heads_width + 2 * hidden * kv_width +
                       3 * hidden * of(model.intermediate_size);
  const double layers = of(model.num_hidden_layers);
  return 6 * (layers * layer + hidden * of(model.vocab_size)) +
         12 * layers * heads_width * of(seq_len);
}

BenchResult bench(const TrainConfig& given, const Rendezvous& rendezvous,
                  const BenchOptions& options) {
  if (given.train.device != "cpu") {
    throw std::invalid_argument(
        "[bench] train.device is \"" + given.train.device +
        "\", but bench compares with what it measures of the host's cores and "
        "memory. scripts/gpu_check.sh measures a GPU.");
  }
  const TrainConfig config = with_checkpointing(given, rendezvous);
  RunSetup setup = prepare_run(config, rendezvous);
  Communicator& world = setup.mesh.world();
  std::optional<plan::TimePlan> predicted;
  if (options.cluster != nullptr) {  // an error before the work, not after it
    predicted =
        plan::make_plan(plan_request(setup.model, setup.config,
                                     setup.mesh.axes(), *options.cluster))
            .time;
  }
  Bench bench(setup.config, setup.mesh, setup.model, setup.data);
  bench.run(options.steps);
  BenchResult result = described(setup.config, setup.model, world);
  bench.summarize(result);
  result.estimated =
      estimated_memory(setup.model, setup.config, setup.mesh.axes(),
                       setup.mesh.communicator("shard").shares_common_memory());
  result.predicted = std::move(predicted);
  result.machine =
      measure_machine(world, *fsdp_options(config).precision.param_dtype);
  return result;
}

}  // namespace accordion
