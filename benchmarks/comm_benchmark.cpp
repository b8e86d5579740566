// SPDX-License-Identifier: BSD-3-Clause
// Speed of the shared memory collectives between two processes, beside memcpy.
//
//   $ build/bin/comm_benchmark [elements per unit, default 12600000]
//
// Prints one line per case for rank 0: milliseconds a call, median and best of
// the rounds; milliseconds of CPU time, median, which tells a busy machine from
// a slow call; and GB/s of memory traffic, bytes read plus bytes written by one
// rank, over the best time. memcpy on both ranks at the same time is the
// yardstick.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace {

using namespace accordion;

constexpr int kWorldSize = 2;
constexpr int kRounds = 15;

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(Communicator& communicator, std::int64_t numel)
      : communicator_(communicator), piece_(numel / kWorldSize) {}

  // Times `call` on both ranks at once; `between` runs outside the clock.
  void report(const char* what, double traffic_bytes,
              const std::function<void()>& call,
              const std::function<void()>& between) {
    std::vector<double> wall;
    std::vector<double> cpu;
    for (int round = 0; round < kRounds; ++round) {
      communicator_.barrier("round");
      const auto start = std::chrono::steady_clock::now();
      const double cpu_start = cpu_ms();
      call();
      cpu.push_back(cpu_ms() - cpu_start);
      const std::chrono::duration<double, std::milli> time =
          std::chrono::steady_clock::now() - start;
      wall.push_back(time.count());
      between();
    }
    if (communicator_.rank() == 0) {
      const double best = *std::min_element(wall.begin(), wall.end());
      std::printf("%-30s %7.2f ms  best %7.2f ms  cpu %7.2f ms  %5.1f GB/s\n",
                  what, median(wall), best, median(cpu),
                  traffic_bytes / best / 1e6);
    }
  }

  void gather(const char* what, DType to) {
    const auto piece = static_cast<std::size_t>(piece_);
    const std::vector<float> local(piece, 1.0f);
    const auto slot = communicator_.allocate_common(
        piece_ * kWorldSize * element_bytes(to), "slot");
    const GatherPart part = {local.data(), DType::Float32, slot->data(), to,
                             piece_};
    report(
        what, static_cast<double>(piece_ * (4 + element_bytes(to))),
        [&] {
          communicator_.all_gather_into({&part, 1}, slot.get(), "unit").wait();
        },
        [&] { communicator_.release(*slot); });
  }

  void reduce(const char* what, DType wire) {
    const std::int64_t bytes = piece_ * kWorldSize * element_bytes(wire);
    const auto gradients = communicator_.allocate_exported(bytes, "gradients");
    std::memset(gradients->data(), 1, static_cast<std::size_t>(bytes));
    std::vector<float> local(static_cast<std::size_t>(piece_));
    const ReducePart part = {gradients->data(), wire,           local.data(),
                             DType::Float32,    DType::Float32, piece_,
                             1.0 / kWorldSize};
    report(
        what, static_cast<double>(bytes + piece_ * 4),
        [&] {
          communicator_.reduce_scatter_into({&part, 1}, gradients.get(), "unit")
              .wait();
        },
        [&] { communicator_.acquire(*gradients); });
  }

  void copy(const char* what, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    const std::vector<char> from(size, 1);
    std::vector<char> to(size, 2);
    report(
        what, 2.0 * static_cast<double>(bytes),
        [&] { std::memcpy(to.data(), from.data(), size); }, [] {});
  }

  void run() {
    copy("memcpy of a piece, fp32", piece_ * 4);
    gather("all-gather fp32 to fp32", DType::Float32);
    gather("all-gather fp32 to bf16", DType::Bfloat16);
    reduce("reduce-scatter fp32 to fp32", DType::Float32);
    reduce("reduce-scatter bf16 to fp32", DType::Bfloat16);
    report(
        "barrier", 0, [&] { communicator_.barrier("b"); }, [] {});
  }

 private:
  Communicator& communicator_;
  const std::int64_t piece_;  // elements of a unit per rank
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t numel = argc > 1 ? std::atoll(argv[1]) : 12'600'000;
  const std::string name = "comm_benchmark-" + std::to_string(getpid());
  std::printf("2 ranks, units of %lld elements\n",
              static_cast<long long>(numel));
  std::fflush(stdout);
  const pid_t child = fork();
  const auto communicator = connect_shm(
      {.rank = child == 0 ? 1 : 0, .world_size = kWorldSize, .name = name});
  Bench(*communicator, numel).run();
  if (child != 0) {
    waitpid(child, nullptr, 0);
  }
  return 0;
}
