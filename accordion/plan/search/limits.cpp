// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/limits.h"

#include <cmath>
#include <stdexcept>

#include "accordion/plan/model_config.h"

namespace accordion::plan {
namespace {

/// Sizes of models are found to this.
constexpr double kPrecision = 1.005;

std::vector<std::vector<std::string>> settings_tried(
    const PlanQuestion& question) {
  std::vector<std::vector<std::string>> tried = {{}};
  const auto add = [&](std::initializer_list<const char*> keys) {
    std::vector<std::string> more = tried.back();
    for (const std::string key : keys) {
      if (!is_stated(key.substr(0, key.find('=')), question)) {
        more.push_back(key);
      }
    }
    if (more != tried.back()) {
      tried.push_back(std::move(more));
    }
  };
  add({"checkpointing=full"});
  add({"offload.optimizer=host", "offload.parameters=host"});
  return tried;
}

std::optional<PlanRequest> fitting(const PlanQuestion& question) {
  try {
    PlanRequest request = resolved(question);
    check(request);
    const double bytes = plan_memory(request).reserved_bytes;
    if (bytes <= request.cluster.gpu.memory_bytes) {
      return request;
    }
  } catch (const std::invalid_argument&) {
    // This size does not divide; others may.
  }
  return std::nullopt;
}

/// Memory grows with the model: the border is between `low`, which fits, and
/// `high`, which does not.
std::optional<PlanRequest> largest(PlanQuestion question) {
  std::optional<PlanRequest> best;
  double low = 1e6;
  double high = 1e14;
  while (high / low > kPrecision) {
    const double middle = std::sqrt(low * high);
    question.model = model_for_params(middle).shape;
    if (auto request = fitting(question)) {
      best = std::move(request);
      low = middle;
    } else {
      high = middle;
    }
  }
  return best;
}

std::optional<PlanRequest> at_hosts(PlanQuestion question, int hosts) {
  question.cluster.num_hosts = hosts;
  return fitting(question);
}

/// State falls with the number of hosts: doubling finds a number that fits,
/// halving the steps between finds the first.
std::optional<PlanRequest> fewest_hosts(const PlanQuestion& question,
                                        int max_hosts) {
  int high = 1;
  while (high <= max_hosts && !at_hosts(question, high)) {
    high *= 2;
  }
  if (high > max_hosts) {
    return std::nullopt;
  }
  int low = high / 2;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (at_hosts(question, middle) ? high : low) = middle;
  }
  return at_hosts(question, high);
}

std::optional<PlanRequest> fewest(PlanQuestion question, int max_gpus) {
  question.settings.strategy.dp_shard = 0;
  question.settings.strategy.dp_replicate = 0;
  const int per_host = question.cluster.gpus_per_host;
  for (int gpus = 1; gpus < per_host; ++gpus) {
    if (per_host % gpus != 0) {
      continue;
    }
    PlanQuestion part = question;
    part.cluster.num_hosts = 1;
    part.cluster.gpus_per_host = gpus;
    if (auto request = fitting(part)) {
      return request;
    }
  }
  return fewest_hosts(question, max_gpus / per_host);
}

template <typename Find>
std::vector<Limit> limits(const PlanQuestion& question, const Find& find) {
  std::vector<Limit> result;
  for (const auto& keys : settings_tried(question)) {
    PlanQuestion tried = question;
    // A batch that does not divide is no limit of memory.
    tried.settings.batch_tokens = 0;
    for (const std::string& key : keys) {
      state_key(key, tried);
    }
    Limit limit = {.keys = keys, .request = find(tried), .plan = {}};
    if (limit.request) {
      limit.plan = make_plan(*limit.request);
    }
    result.push_back(std::move(limit));
  }
  return result;
}

}  // namespace

std::vector<Limit> max_model(const PlanQuestion& question) {
  return limits(question, largest);
}

std::vector<Limit> min_gpus(const PlanQuestion& question, int max_gpus) {
  return limits(question, [&](const PlanQuestion& tried) {
    return fewest(tried, max_gpus);
  });
}

}  // namespace accordion::plan
