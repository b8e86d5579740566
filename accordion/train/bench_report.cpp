// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/bench_report.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/train/metrics.h"

namespace accordion {
namespace {

struct Part {
  std::string_view name;
  double StepBreakdown::*ms;
};

/// What adds up to a step.
constexpr std::array kParts = {
    Part{"compute", &StepBreakdown::compute},
    Part{"gather", &StepBreakdown::gather},
    Part{"reduce", &StepBreakdown::reduce},
    Part{"optimizer", &StepBreakdown::optimizer},
    Part{"data", &StepBreakdown::data},
    Part{"other", &StepBreakdown::other},
};

struct Memory {
  double all_ranks_mib = 0.0;     ///< shared pages counted once
  double largest_rank_mib = 0.0;  ///< resident
};

Memory memory_of(const BenchResult& result) {
  Memory memory;
  for (const MemoryUse& rank : result.memory) {
    memory.all_ranks_mib += rank.pss_mib;
    memory.largest_rank_mib = std::max(memory.largest_rank_mib, rank.rss_mib);
  }
  return memory;
}

double least(const std::vector<double>& values) {
  return *std::ranges::min_element(values);
}

double most(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

double percent_of(double part, double whole) {
  return part / whole * 100;
}

nlohmann::json to_json(const MemoryByKind& memory) {
  nlohmann::json bytes;
  for (const MemoryKind& kind : kMemoryKinds) {
    bytes[std::string(kind.name)] = memory.*kind.bytes;
  }
  return bytes;
}

std::string held(const BenchResult& r) {
  return fmt::format("held by rank 0     {:10.0f}   MiB at most, in {}: {}\n",
                     static_cast<double>(r.held.highest().total()) / (1 << 20),
                     to_string(r.held.phase()), describe(r.held.highest()));
}

std::string heading(const BenchResult& r) {
  return fmt::format(
      "{}: {:.1f}M parameters, {:.1f} MFLOP a token\n"
      "{} in {} over {} rank{} ({}), {} thread{} each, {} tokens a step; "
      "{} steps after {} to warm up\n",
      std::filesystem::path(r.model).filename().string(),
      static_cast<double>(r.parameters) / 1e6, r.flops_per_token / 1e6,
      r.strategy, r.param_dtype, r.world_size, r.world_size == 1 ? "" : "s",
      r.backend, r.threads, r.threads == 1 ? "" : "s", r.tokens_per_step,
      r.step_ms.size(), kBenchWarmupSteps);
}

std::string figures(const BenchResult& r) {
  const auto tokens = static_cast<double>(r.tokens_per_step) * 1e3;
  const Memory memory = memory_of(r);
  return fmt::format(
      "tokens/s           {:10.0f}   least {:.0f}, most {:.0f}\n"
      "ms a step          {:10.1f}   least {:.1f}, most {:.1f}\n"
      "MFU                {:9.1f} %   of the matmul rate\n"
      "matmul rate        {:10.0f}   GFLOP/s: products of {} x {} matrices in "
      "{}, all ranks at once\n"
      "memory bandwidth   {:10.1f}   GB/s: copies, read and written, all ranks "
      "at once\n"
      "page faults        {:10.0f}   a step and rank\n"
      "peak memory        {:10.0f}   MiB, all ranks, shared pages counted "
      "once; "
      "{:.0f} resident in the largest\n",
      r.tokens_per_s(), tokens / most(r.step_ms), tokens / least(r.step_ms),
      median(r.step_ms), least(r.step_ms), most(r.step_ms),
      r.flops_utilization() * 100, r.machine.matmul_flops / 1e9, kMatmulSize,
      kMatmulSize, r.param_dtype, r.machine.memory_bytes / 1e9, r.page_faults,
      memory.all_ranks_mib, memory.largest_rank_mib);
}

std::string breakdown(const StepBreakdown& b) {
  std::string text =
      "where a step goes          ms       %   (means of steps and ranks)\n";
  for (const Part& part : kParts) {
    text += fmt::format("  {:<16} {:10.1f}  {:6.1f}", part.name, b.*part.ms,
                        percent_of(b.*part.ms, b.total));
    if (part.ms == &StepBreakdown::gather) {
      text += fmt::format("   {:.1f} ms awaited", b.gather_wait);
    } else if (part.ms == &StepBreakdown::reduce) {
      text += fmt::format("   {:.1f} ms awaited", b.reduce_wait);
    }
    text += '\n';
  }
  return text +
         fmt::format("  {:<16} {:10.1f}  {:6.1f}\n", "step", b.total, 100.0);
}

/// By part, as far as the planner tells them apart. A rank's cores either
/// compute or communicate.
nlohmann::json to_json(const plan::TimePlan& time) {
  const auto ms = [](double seconds) { return seconds * 1e3; };
  return {{"step", ms(time.step_s)},
          {"compute", ms(time.forward_s + time.backward_s - time.contention_s)},
          {"gather", ms(time.gather_s)},
          {"reduce", ms(time.reduce_s)},
          {"optimizer", ms(time.optimizer_s)}};
}

std::string prediction(const BenchResult& r) {
  if (!r.predicted) {
    return "";
  }
  const double predicted = r.predicted->step_s * 1e3;
  return fmt::format(
      "predicted          {:10.1f}   ms a step, {:+.1f} % of what was "
      "measured\n",
      predicted, (predicted / median(r.step_ms) - 1.0) * 100);
}

}  // namespace

std::string to_table(const BenchResult& result) {
  return heading(result) + "\n" + figures(result) + prediction(result) +
         held(result) + "\n" + breakdown(result.breakdown);
}

std::string to_json(const BenchResult& r) {
  nlohmann::json ms = {{"step", r.breakdown.total},
                       {"gather_wait", r.breakdown.gather_wait},
                       {"reduce_wait", r.breakdown.reduce_wait}};
  nlohmann::json percent;
  for (const Part& part : kParts) {
    const std::string name(part.name);
    ms[name] = r.breakdown.*part.ms;
    percent[name] = percent_of(r.breakdown.*part.ms, r.breakdown.total);
  }
  const Memory memory = memory_of(r);
  const double mean = std::accumulate(r.step_ms.begin(), r.step_ms.end(), 0.0) /
                      static_cast<double>(r.step_ms.size());
  nlohmann::json json = {
      {"model", r.model},
      {"parameters", r.parameters},
      {"flops_per_token", r.flops_per_token},
      {"strategy", r.strategy},
      {"param_dtype", r.param_dtype},
      {"backend", r.backend},
      {"world_size", r.world_size},
      {"threads", r.threads},
      {"tokens_per_step", r.tokens_per_step},
      {"warmup_steps", kBenchWarmupSteps},
      {"tokens_per_s", r.tokens_per_s()},
      {"step_ms",
       {{"median", median(r.step_ms)},
        {"min", least(r.step_ms)},
        {"max", most(r.step_ms)},
        {"mean", mean},
        {"each", r.step_ms}}},
      {"mfu", r.flops_utilization()},
      {"matmul",
       {{"flops_per_s", r.machine.matmul_flops},
        {"size", kMatmulSize},
        {"dtype", r.param_dtype}}},
      {"memory_bytes_per_s", r.machine.memory_bytes},
      {"breakdown_ms", std::move(ms)},
      {"breakdown_percent", std::move(percent)},
      {"page_faults_per_step", r.page_faults},
      {"peak_memory_mib",
       {{"all_ranks_pss", memory.all_ranks_mib},
        {"largest_rank_rss", memory.largest_rank_mib}}},
      {"memory_bytes",
       {{"held", to_json(r.held.each())}, {"estimated", to_json(r.estimated)}}},
      {"losses", r.losses},
      {"grad_norms", r.grad_norms},
  };
  if (r.predicted) {
    json["predicted_ms"] = to_json(*r.predicted);
  }
  return json.dump(2) + "\n";
}

}  // namespace accordion
