// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/search.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/question/plan_keys.h"

namespace accordion::plan {
namespace {

/// Microbatches that are tried: powers of two and one between each.
std::vector<std::int64_t> micro_batches() {
  std::vector<std::int64_t> sizes = {1};
  for (std::int64_t size = 2; size <= 4096; size *= 2) {
    sizes.push_back(size);
    sizes.push_back(size + size / 2);
  }
  return sizes;
}

/// Goes through the settings, outermost first.
class Searcher {
 public:
  Searcher(const PlanQuestion& question, std::size_t keep)
      : question_(question), keep_(keep), base_(starting_point(question)) {}

  SearchResult run() {
    for (const int tensor : tensors()) {
      for (const auto& [shard, replicate] : meshes(tensor)) {
        for (const Sharding sharding : shardings(shard, replicate)) {
          PlanRequest request = base_;
          request.strategy.tensor = tensor;
          request.strategy.dp_shard = shard;
          request.strategy.dp_replicate = replicate;
          request.strategy.sharding = sharding;
          each_checkpointing(request);
        }
      }
    }
    trim();
    return std::move(result_);
  }

 private:
  struct Mesh {
    int shard;
    int replicate;
  };

  bool stated(std::string_view key) const { return is_stated(key, question_); }

  /// What the search starts from; its batch is set in each_batch().
  static PlanRequest starting_point(PlanQuestion question) {
    question.settings.batch_tokens = 0;
    return resolved(question);
  }

  std::vector<int> tensors() const {
    if (stated("tensor") || stated("dp_shard") || stated("dp_replicate")) {
      return {base_.strategy.tensor};
    }
    std::vector<int> result;
    const int host = question_.cluster.gpus_per_host;
    for (int tensor = 1; tensor <= std::min(host, 16); tensor *= 2) {
      if (question_.model.num_heads % tensor == 0 && host % tensor == 0) {
        result.push_back(tensor);
      }
    }
    return result;
  }

  std::vector<Mesh> meshes(int tensor) const {
    const Strategy& given = base_.strategy;
    if (stated("dp_shard") || stated("dp_replicate") ||
        question_.settings.hybrid) {
      return {{given.dp_shard, given.dp_replicate}};
    }
    const int others = tensor * given.pipeline * given.context;
    std::vector<Mesh> result;
    if (question_.cluster.num_gpus() % others != 0) {
      return result;
    }
    const int data = question_.cluster.num_gpus() / others;
    const int host =
        std::clamp(question_.cluster.gpus_per_host / others, 1, data);
    result.push_back({data, 1});
    if (stated("strategy") && given.sharding == Sharding::NoShard) {
      return result;  // has no axis to shard over
    }
    for (int shard = host; shard < data; shard *= 2) {
      if (data % shard == 0) {
        result.push_back({shard, data / shard});
      }
    }
    return result;
  }

  std::vector<Sharding> shardings(int shard, int replicate) const {
    if (stated("strategy")) {
      return {base_.strategy.sharding};
    }
    if (shard * replicate == 1) {
      return {Sharding::FullShard};
    }
    std::vector<Sharding> result = {Sharding::FullShard, Sharding::ShardGradOp,
                                    Sharding::ShardOptimizer};
    if (replicate == 1) {
      result.push_back(Sharding::NoShard);
    }
    return result;
  }

  void each_checkpointing(PlanRequest request) {
    if (stated("checkpointing")) {
      each_batch(request);
      return;
    }
    for (const Checkpointing mode :
         {Checkpointing::None, Checkpointing::Selective, Checkpointing::Full}) {
      request.training.checkpointing = mode;
      each_batch(request);
    }
  }

  /// Sizes grow until one does not fit: memory grows with them.
  void each_batch(PlanRequest request) {
    const std::int64_t tokens = question_.settings.batch_tokens;
    const std::int64_t sequence =
        request.training.seq_len * request.strategy.data_ranks();
    for (const std::int64_t size : sizes()) {
      request.training.micro_batch = size;
      if (tokens > 0) {
        if (tokens % (sequence * size) != 0) {
          continue;
        }
        request.training.grad_accum = tokens / (sequence * size);
      }
      if (!offer(request)) {
        return;
      }
    }
  }

  std::vector<std::int64_t> sizes() const {
    return stated("micro_batch")
               ? std::vector<std::int64_t>{base_.training.micro_batch}
               : micro_batches();
  }

  /// False where larger ones need not be tried.
  bool offer(const PlanRequest& request) {
    try {
      check(request);
    } catch (const std::invalid_argument&) {
      return false;  // this mesh or cut does not exist
    }
    ++result_.num_examined;
    // Memory is cheaper to plan than time.
    const MemoryPlan memory = plan_memory(request);
    if (memory.reserved_bytes > request.cluster.gpu.memory_bytes) {
      offer_smallest(request, memory.reserved_bytes);
      return false;
    }
    ++result_.num_fitting;
    Plan plan = make_plan(request);
    plan.time.events.clear();
    result_.fastest.push_back({keys_of(request), request, std::move(plan)});
    if (result_.fastest.size() > 64 + keep_) {
      trim();
    }
    return true;
  }

  void offer_smallest(const PlanRequest& request, double bytes) {
    if (result_.smallest.empty() ||
        bytes < result_.smallest.front().plan.memory.reserved_bytes) {
      result_.smallest = {{keys_of(request), request, make_plan(request)}};
    }
  }

  void trim() {
    std::stable_sort(result_.fastest.begin(), result_.fastest.end(),
                     [](const FoundPlan& a, const FoundPlan& b) {
                       return a.plan.tokens_per_s_per_gpu >
                              b.plan.tokens_per_s_per_gpu;
                     });
    if (result_.fastest.size() > keep_) {
      result_.fastest.erase(
          result_.fastest.begin() + static_cast<std::ptrdiff_t>(keep_),
          result_.fastest.end());
    }
    if (!result_.fastest.empty()) {
      result_.smallest.clear();
    }
  }

  static std::vector<std::string> keys_of(const PlanRequest& request) {
    const Strategy& strategy = request.strategy;
    static constexpr std::string_view kModes[] = {"none", "selective", "full"};
    return {
        fmt::format("strategy={}", to_string(strategy.sharding)),
        fmt::format("dp_shard={}", strategy.dp_shard),
        fmt::format("dp_replicate={}", strategy.dp_replicate),
        fmt::format("tensor={}", strategy.tensor),
        fmt::format("micro_batch={}", request.training.micro_batch),
        fmt::format("grad_accum={}", request.training.grad_accum),
        fmt::format(
            "checkpointing={}",
            kModes[static_cast<std::size_t>(request.training.checkpointing)])};
  }

  const PlanQuestion& question_;
  std::size_t keep_;
  PlanRequest base_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const PlanQuestion& question, std::size_t keep) {
  return Searcher(question, keep).run();
}

}  // namespace accordion::plan
