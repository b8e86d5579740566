// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/advice.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

namespace accordion::plan {
namespace {

/// Below this a gain is within what the model is wrong by.
constexpr double kLeastGain = 0.01;

/// What a change must add to larger microbatches alone, to be worth naming
/// together with them.
constexpr double kLeastBesides = 0.02;

constexpr const char* kMicroBatch = "micro-batch";

/// The best plan that fits of every kind of change.
class BestOfKind {
 public:
  void offer(ChangedPlan changed) {
    if (!changed.plan.fits) {
      return;
    }
    const std::string kind = changed.change.kind;
    const auto found = best_.find(kind);
    if (found == best_.end()) {
      best_.emplace(kind, std::move(changed));
    } else if (speed(changed) > speed(found->second)) {
      found->second = std::move(changed);
    }
  }
  bool empty() const { return best_.empty(); }

  /// Of larger microbatches alone; 0 where there are none.
  double of_micro_batch() const {
    const auto found = best_.find(kMicroBatch);
    return found == best_.end() ? 0.0 : speed(found->second);
  }

  /// Larger microbatches come first: they change nothing else.
  std::vector<Advice> fastest(double than, double least, std::size_t count) {
    std::vector<Advice> all;
    for (auto& [kind, changed] : best_) {
      const double gain = speed(changed) / than - 1.0;
      if (gain > least) {
        all.push_back({std::move(changed), gain});
      }
    }
    const auto rank = [](const Advice& advice) {
      return std::pair(advice.changed.change.kind == kMicroBatch, advice.gain);
    };
    std::sort(all.begin(), all.end(), [&](const Advice& a, const Advice& b) {
      return rank(a) > rank(b);
    });
    if (all.size() > count) {
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
    }
    return all;
  }

  static double speed(const ChangedPlan& changed) {
    return changed.plan.tokens_per_s_per_gpu;
  }

 private:
  std::map<std::string, ChangedPlan> best_;
};

Change with_micro_batch(Change change, std::int64_t micro_batch) {
  change.keys.push_back(fmt::format("micro_batch={}", micro_batch));
  return change;
}

/// The change as it is, and with microbatches up to as large as fit.
void offer_with_batches(const PlanQuestion& question, std::int64_t now,
                        const Change& change, BestOfKind& best) {
  const bool alone = !change.keys.empty();
  if (alone) {
    auto same = with_change(question, change);
    if (!same || !same->plan.fits) {
      return;
    }
    best.offer(std::move(*same));
  }
  const double besides =
      alone ? (1.0 + kLeastBesides) * best.of_micro_batch() : 0.0;
  for (std::int64_t times = 2; times <= 1024; times *= 2) {
    for (const std::int64_t batch : {now * times, now * times * 3 / 2}) {
      auto larger = with_change(question, with_micro_batch(change, batch));
      if (!larger) {
        continue;  // the batch does not divide
      }
      if (!larger->plan.fits) {
        return;
      }
      if (BestOfKind::speed(*larger) > besides) {
        best.offer(std::move(*larger));
      }
    }
  }
}

Change both(const Change& a, const Change& b) {
  Change change = a;
  change.kind = a.kind + " and " + b.kind;
  change.keys.insert(change.keys.end(), b.keys.begin(), b.keys.end());
  change.why = a.why + "; " + b.why;
  return change;
}

/// The change on more hosts of the same kind, where the parts of the state are
/// smaller.
void offer_clusters(const PlanQuestion& question, Change change,
                    BestOfKind& best) {
  PlanQuestion larger = question;
  const std::vector<std::string> keys = change.keys;
  change.keys.insert(change.keys.end(), {"dp_shard=0", "dp_replicate=0"});
  for (int times = 2; times <= 256; times *= 2) {
    larger.cluster.num_hosts = question.cluster.num_hosts * times;
    auto changed = with_change(larger, change);
    if (changed && changed->plan.fits) {
      changed->change.keys = keys;
      changed->change.kind = "GPUs";
      changed->change.why =
          fmt::format("{}{} hosts of {} GPUs", change.why,
                      larger.cluster.num_hosts, larger.cluster.gpus_per_host);
      best.offer(std::move(*changed));
      return;
    }
  }
}

std::string memory_constraint(const PlanRequest& request, const Plan& plan) {
  const DeviceMemory& peak = plan.memory.highest();
  const DeviceMemoryKind* largest = &kDeviceMemoryKinds.front();
  for (const DeviceMemoryKind& kind : kDeviceMemoryKinds) {
    if (peak.*kind.bytes > peak.*largest->bytes) {
      largest = &kind;
    }
  }
  constexpr double kGib = 1073741824.0;
  return fmt::format(
      "Memory: {:.1f} GiB a GPU are needed, {:.1f} more than the {:.1f} of {}. "
      "Most of it, {:.1f} GiB, is {}.",
      plan.memory.reserved_bytes / kGib,
      (plan.memory.reserved_bytes - request.cluster.gpu.memory_bytes) / kGib,
      request.cluster.gpu.memory_bytes / kGib, request.cluster.gpu.name,
      peak.*largest->bytes / kGib, largest->name);
}

/// The link that data-parallel collectives go over.
std::string link_words(const PlanRequest& request) {
  const Cluster& cluster = request.cluster;
  const LinkType& link =
      cluster.num_hosts > 1 ? cluster.between : cluster.inside;
  return fmt::format("{} ({:.1f} GB/s a GPU, one way)", link.name,
                     link.bytes_per_s / 1e9);
}

std::string lower_first(std::string words) {
  words.front() = static_cast<char>(
      std::tolower(static_cast<unsigned char>(words.front())));
  return words;
}

}  // namespace

std::string binding_constraint(const PlanRequest& request, const Plan& plan) {
  if (!plan.fits) {
    return memory_constraint(request, plan);
  }
  const TimePlan& time = plan.time;
  struct Part {
    double seconds;
    std::string words;
  };
  const std::vector<Part> parts = {
      {time.exposed_gather_s + time.exposed_reduce_s,
       "Communication: waiting for gathers and reductions over " +
           link_words(request)},
      {time.tensor_s + time.context_s,
       "Communication of tensor and context ranks"},
      {time.pipeline_bubble_s, "The pipeline: waiting for other stages"},
      {time.offload_s, "Offloading: waiting for transfers to the host"},
      {time.optimizer_s, "The optimizer's step"},
      {time.recompute_s, "Recomputation of activations"},
      {time.contention_s, "Contention of computation with collectives"}};
  const Part& most =
      *std::max_element(parts.begin(), parts.end(),
                        [](auto& a, auto& b) { return a.seconds < b.seconds; });
  const double computation =
      (time.forward_s + time.backward_s - time.recompute_s - time.tensor_s -
       time.context_s - time.contention_s) /
      time.step_s;
  const std::string second =
      fmt::format("{:.1f} % of the step", 100.0 * most.seconds / time.step_s);
  // A fifth of a step is worth more than anything that speeds computation up.
  if (most.seconds > 0.2 * time.step_s) {
    return fmt::format("{}, {}.", most.words, second);
  }
  return fmt::format(
      "Computation: {:.1f} % of the step, at {:.1f} % of the peak of {}. Next "
      "comes {}, {}.",
      100.0 * computation, 100.0 * plan.mfu, request.cluster.gpu.name,
      lower_first(most.words), second);
}

namespace {

/// Fewer activations, or more GPUs.
void offer_what_fits(const PlanQuestion& question, std::int64_t batch,
                     const std::vector<Change>& changes, BestOfKind& best) {
  for (std::int64_t less = batch / 2; less >= 1; less /= 2) {
    auto smaller = with_change(
        question,
        with_micro_batch({kMicroBatch, {}, "fewer activations"}, less));
    if (smaller) {
      best.offer(std::move(*smaller));
    }
  }
  offer_clusters(question, {"GPUs", {}, ""}, best);
  for (Change change : changes) {
    if (change.kind == "checkpointing") {
      change.why += "; ";
      offer_clusters(question, change, best);
    }
  }
}

void offer_pairs(const PlanQuestion& question,
                 const std::vector<Change>& changes, BestOfKind& best) {
  for (std::size_t a = 0; a < changes.size(); ++a) {
    for (std::size_t b = a + 1; b < changes.size(); ++b) {
      if (changes[a].kind == changes[b].kind) {
        continue;
      }
      if (auto pair = with_change(question, both(changes[a], changes[b]))) {
        best.offer(std::move(*pair));
      }
    }
  }
}

}  // namespace

std::vector<Advice> worthwhile_changes(const PlanQuestion& question,
                                       const PlanRequest& request,
                                       const Plan& plan, std::size_t count) {
  const std::vector<Change> changes = possible_changes(request);
  const std::int64_t batch = request.training.micro_batch;
  BestOfKind best;
  if (plan.fits) {
    offer_with_batches(question, batch,
                       {kMicroBatch, {}, "more work for each collective"},
                       best);
  } else {
    offer_what_fits(question, batch, changes, best);
  }
  for (const Change& change : changes) {
    offer_with_batches(question, batch, change, best);
  }
  if (plan.fits) {
    return best.fastest(plan.tokens_per_s_per_gpu, kLeastGain, count);
  }
  BestOfKind pairs;
  offer_pairs(question, changes, pairs);
  // What does not fit has no speed to compare with: the fastest come first,
  // single changes before pairs.
  std::vector<Advice> advice =
      best.fastest(plan.tokens_per_s_per_gpu, -1.0, count);
  for (Advice& pair :
       pairs.fastest(plan.tokens_per_s_per_gpu, -1.0, count - advice.size())) {
    advice.push_back(std::move(pair));
  }
  return advice;
}

}  // namespace accordion::plan
