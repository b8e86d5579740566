// SPDX-License-Identifier: BSD-3-Clause
#include "benchmarks/rank_clock.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <new>

namespace accordion::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

// Of all threads of this rank.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls in a row, so that what is short is not lost in what starts it.
int calls_in_a_row(std::int64_t bytes) {
  constexpr std::int64_t kEnough = 1 << 20;
  return static_cast<int>(std::clamp<std::int64_t>(
      kEnough / std::max<std::int64_t>(bytes, 1), 1, 100));
}

int num_rounds(std::int64_t bytes) {
  constexpr std::int64_t kEnough = 1 << 30;
  return static_cast<int>(std::clamp<std::int64_t>(
      kEnough / std::max<std::int64_t>(bytes, 1), 7, 40));
}

// What a step does between two collectives: it touches other memory, so that
// operands of some size are not found in the caches.
class OtherMemory {
 public:
  explicit OtherMemory(std::int64_t bytes_of_call)
      : bytes_(bytes_of_call < (1 << 20) ? 0 : 64 << 20) {}

  void touch() {
    constexpr std::size_t kLine = 64;
    for (std::size_t i = 0; i < bytes_.size(); i += kLine) {
      bytes_[i] = static_cast<char>(bytes_[i] + 1);
    }
  }

 private:
  std::vector<char> bytes_;
};

struct Samples {
  std::vector<double> wall;
  std::vector<double> processor;

  [[nodiscard]] Times summary() {
    std::sort(wall.begin(), wall.end());
    return {wall[wall.size() / 2], wall.front(),
            *std::min_element(processor.begin(), processor.end())};
  }
};

}  // namespace

RankClock::RankClock(int world_size) : world_size_(world_size) {
  void* memory =
      mmap(nullptr, sizeof(double) * world_size, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  seconds_ = static_cast<double*>(memory);
}

RankClock::~RankClock() {
  munmap(seconds_, sizeof(double) * world_size_);
}

std::vector<Times> RankClock::time_by_turns(
    const std::vector<std::function<void()>>& calls, std::int64_t bytes) {
  const int in_a_row = calls_in_a_row(bytes);
  std::vector<Samples> samples(calls.size());
  OtherMemory others(bytes);
  for (const auto& call : calls) {
    call();  // maps, connects and fills caches
  }
  for (int round = 0; round < num_rounds(bytes); ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      others.touch();
      communicator_->barrier("turn");
      const double processor_start = processor_seconds();
      const auto start = Clock::now();
      for (int repeat = 0; repeat < in_a_row; ++repeat) {
        calls[i]();
      }
      const double wall = since(start);
      const double processor = processor_seconds() - processor_start;
      samples[i].wall.push_back(slowest(wall) / in_a_row);
      samples[i].processor.push_back(slowest(processor) / in_a_row);
    }
  }
  std::vector<Times> times;
  for (Samples& of_call : samples) {
    times.push_back(of_call.summary());
  }
  return times;
}

double RankClock::slowest(double own) {
  seconds_[communicator_->rank()] = own;
  communicator_->barrier("times are written");
  const double most = *std::max_element(seconds_, seconds_ + world_size_);
  communicator_->barrier("times are read");
  return most;
}

}  // namespace accordion::benchmarks
