// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/collective_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "accordion/train/metrics.h"
#include "accordion/train/rank_agreement.h"

namespace accordion {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::int64_t, 4> kBytes = {64LL << 10, 1LL << 20,
                                                8LL << 20, 64LL << 20};
constexpr std::array<DType, 2> kWireTypes = {DType::Float32, DType::Bfloat16};

/// Fewer where each takes long: a slow link is known after a few.
int repetitions(std::int64_t bytes) {
  return bytes > (8LL << 20) ? 3 : 11;
}

/// Median over calls that begin together, mean over ranks.
double seconds_of(Communicator& group, std::int64_t bytes,
                  const std::function<void()>& call) {
  call();
  std::vector<double> times;
  for (int i = 0; i < repetitions(bytes); ++i) {
    group.barrier("collective rates");
    const auto start = Clock::now();
    call();
    times.push_back(
        std::chrono::duration<double>(Clock::now() - start).count());
  }
  return sum_over_ranks(group, std::vector{median(times)},
                        "collective rates")[0] /
         group.world_size();
}

/// Seconds of one collective by size and wire type.
using Times = std::array<double, kBytes.size()>;

class Collectives {
 public:
  explicit Collectives(Communicator& group)
      : group_(group),
        common_(group.allocate_common(kBytes.back(), "collective rates")),
        exported_(group.allocate_exported(kBytes.back(), "collective rates")),
        local_(static_cast<std::size_t>(kBytes.back() /
                                        element_bytes(DType::Bfloat16) /
                                        group.world_size())) {}

  double gather_seconds(std::int64_t bytes, DType wire) {
    const GatherPart part{.local = local_.data(),
                          .local_dtype = DType::Float32,
                          .full = common_->data(),
                          .full_dtype = wire,
                          .numel = numel(bytes, wire)};
    return seconds_of(group_, bytes, [&] {
      group_.all_gather_into({&part, 1}, common_.get(), "calibration").wait();
      group_.release(*common_);
    });
  }

  double reduce_seconds(std::int64_t bytes, DType wire) {
    double squares = 0.0;
    const ReducePart part{.full = exported_->data(),
                          .full_dtype = wire,
                          .local = local_.data(),
                          .local_dtype = DType::Float32,
                          .reduce_dtype = DType::Float32,
                          .numel = numel(bytes, wire),
                          .sum_of_squares = &squares};
    return seconds_of(group_, bytes, [&] {
      group_.acquire(*exported_);
      group_.reduce_scatter_into({&part, 1}, exported_.get(), "calibration")
          .wait();
    });
  }

 private:
  [[nodiscard]] std::int64_t numel(std::int64_t bytes, DType wire) const {
    return bytes / element_bytes(wire) / group_.world_size();
  }

  Communicator& group_;
  std::unique_ptr<CommBuffer> common_;
  std::unique_ptr<CommBuffer> exported_;
  std::vector<float> local_;
};

template <class Measure>
Times measure(const Measure& seconds) {
  Times times{};
  for (std::size_t i = 0; i < kBytes.size(); ++i) {
    for (const DType wire : kWireTypes) {
      times[i] += seconds(kBytes[i], wire) / kWireTypes.size();
    }
  }
  return times;
}

/// Between the two largest sizes time grows with the rate alone.
double rate_of(const Times& times, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const double large = times[kBytes.size() - 1];
  const double small = times[kBytes.size() - 2];
  const auto bytes = static_cast<double>(kBytes[kBytes.size() - 1] -
                                         kBytes[kBytes.size() - 2]);
  return share * bytes / std::max(large - small, 1e-9);
}

double latency_of(const Times& times, double rate, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const double moved = share * static_cast<double>(kBytes[0]) / rate;
  constexpr double kLeast = 1e-7;
  return std::max(times[0] - moved, kLeast) / (ranks - 1);
}

}  // namespace

plan::LinkType measure_link(Communicator& group, plan::LinkType link) {
  const int ranks = group.world_size();
  if (ranks == 1) {
    return link;
  }
  Collectives collectives(group);
  const Times gathers = measure([&](std::int64_t bytes, DType wire) {
    return collectives.gather_seconds(bytes, wire);
  });
  const Times reductions = measure([&](std::int64_t bytes, DType wire) {
    return collectives.reduce_seconds(bytes, wire);
  });
  link.efficiency = 1.0;
  link.bytes_per_s = rate_of(gathers, ranks);
  link.reduce_bytes_per_s = rate_of(reductions, ranks);
  link.latency_s = (latency_of(gathers, link.bytes_per_s, ranks) +
                    latency_of(reductions, link.reduce_bytes_per_s, ranks)) /
                   2.0;
  return link;
}

}  // namespace accordion
