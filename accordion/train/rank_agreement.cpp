// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/rank_agreement.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace accordion {
namespace {

constexpr auto kBeat = std::chrono::seconds(1);

enum class JobState : std::uint8_t { Done, Working, Failed };

/// A job on a thread of its own; its destructor asks it to stop and waits.
class JobThread {
 public:
  explicit JobThread(const RankJob& job) {
    std::packaged_task<Failure(std::stop_token)> task(
        [&job](const std::stop_token& stop) { return run(job, stop); });
    result_ = task.get_future();
    thread_ = std::jthread(std::move(task));
  }

  /// Waits a beat at most.
  JobState wait() {
    if (state_ == JobState::Working &&
        result_.wait_for(kBeat) == std::future_status::ready) {
      const Failure failure = result_.get();
      error_ = failure.value_or("");
      state_ = failure ? JobState::Failed : JobState::Done;
    }
    return state_;
  }

  /// What went wrong, once wait() said so.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  /// What a job threw. A text and not an exception: libstdc++ counts the owners
  /// of an exception where the thread sanitizer cannot see it.
  using Failure = std::optional<std::string>;

  static Failure run(const RankJob& job, const std::stop_token& stop) {
    try {
      if (job) {
        job(stop);
      }
      return std::nullopt;
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  std::future<Failure> result_;
  JobState state_ = JobState::Working;
  std::string error_;
  std::jthread thread_;  // last: joined before the rest goes
};

/// A text of rank `root`, on every rank.
std::string text_from(Communicator& world, int root, std::string text,
                      std::string_view label) {
  auto length = static_cast<std::int64_t>(text.size());
  world.broadcast(&length, sizeof(length), root, label);
  text.resize(static_cast<std::size_t>(length));
  if (!text.empty()) {
    world.broadcast(text.data(), length, root, label);
  }
  return text;
}

}  // namespace

std::vector<double> sum_over_ranks(Communicator& world,
                                   std::span<const double> values,
                                   std::string_view label) {
  std::vector<double> sums(values.begin(), values.end());
  const ReducePart part = {.full = sums.data(),
                           .full_dtype = DType::Float64,
                           .local = sums.data(),
                           .local_dtype = DType::Float64,
                           .reduce_dtype = DType::Float64,
                           .numel = static_cast<std::int64_t>(sums.size())};
  world.all_reduce({&part, 1}, nullptr, label).wait();
  return sums;
}

std::vector<double> gather_over_ranks(Communicator& world, double value,
                                      std::string_view label) {
  std::vector<double> values(static_cast<std::size_t>(world.world_size()), 0.0);
  values[static_cast<std::size_t>(world.rank())] = value;
  return sum_over_ranks(world, values, label);
}

void run_while_others_wait(Communicator& world, const RankJob& job,
                           std::string_view label) {
  JobThread thread(job);
  for (bool working = true; working;) {
    const auto states =
        gather_over_ranks(world, static_cast<double>(thread.wait()), label);
    working = false;
    for (int rank = 0; rank < world.world_size(); ++rank) {
      const auto state = static_cast<JobState>(
          static_cast<int>(states[static_cast<std::size_t>(rank)]));
      if (state == JobState::Failed) {
        throw std::runtime_error(text_from(world, rank, thread.error(), label));
      }
      working = working || state == JobState::Working;
    }
  }
}

void require_equal(Communicator& world, std::uint64_t value,
                   std::string_view what) {
  // A double holds 53 bits.
  const auto low =
      gather_over_ranks(world, static_cast<double>(value & 0xffffffffU), what);
  const auto high =
      gather_over_ranks(world, static_cast<double>(value >> 32), what);
  std::vector<std::size_t> others;
  for (std::size_t rank = 1; rank < low.size(); ++rank) {
    if (low[rank] != low[0] || high[rank] != high[0]) {
      others.push_back(rank);
    }
  }
  if (!others.empty()) {
    throw std::runtime_error(fmt::format(
        "[train] The {} are not the same on all ranks: rank(s) {} differ from "
        "rank 0. Give every host the same files.",
        what, fmt::join(others, ", ")));
  }
}

std::string text_from_rank_0(Communicator& world,
                             const std::function<std::string()>& make,
                             std::string_view label) {
  std::string text;
  std::int64_t failed = 0;
  if (world.rank() == 0) {
    try {
      text = make();
    } catch (const std::exception& error) {
      text = error.what();
      failed = 1;
    }
  }
  world.broadcast(&failed, sizeof(failed), 0, label);
  text = text_from(world, 0, std::move(text), label);
  if (failed != 0) {
    throw std::runtime_error(text);
  }
  return text;
}

std::optional<OffloadMetrics> offload_metrics(
    Communicator& world, const std::optional<OffloadCounters>& mine) {
  if (!mine) {
    return std::nullopt;
  }
  constexpr double kMib = 1 << 20;
  const double read = static_cast<double>(mine->bytes_read) / kMib;
  const double written = static_cast<double>(mine->bytes_written) / kMib;
  const double busy = std::max(mine->seconds_in_flight, 1e-9);
  const std::vector<double> sums =
      sum_over_ranks(world,
                     std::vector{read, written, mine->seconds_waited * 1e3,
                                 (read + written) / busy},
                     "offloaded bytes of the step");
  const double ranks = world.world_size();
  return OffloadMetrics{.read_mib = sums[0],
                        .written_mib = sums[1],
                        .waited_ms = sums[2] / ranks,
                        .mib_per_s = sums[3] / ranks};
}

}  // namespace accordion
