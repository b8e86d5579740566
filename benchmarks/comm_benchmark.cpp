// SPDX-License-Identifier: BSD-3-Clause
// Speed of the collectives between processes of this host, beside Gloo and
// beside what memory allows.
//
//   $ build/bin/comm_benchmark [ranks, default 2] [largest MB, default 256]
//
// Shared memory, Gloo and the loops of stream_kernels.h run by turns, on all
// ranks at once; a time is that of the slowest rank, least and median of the
// rounds. GB/s is the traffic of all ranks, bytes read plus bytes written, over
// the least time. "limit" is the speed as a share of that of loops that read
// and write as many bytes and do nothing else; "by cpu" is the same by
// processor time, which other programs on the machine lengthen less.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/shm/shm_communicator.h"
#include "benchmarks/collective_calls.h"
#include "benchmarks/rank_clock.h"
#ifdef ACCORDION_WITH_GLOO
#include "accordion/comm/gloo/gloo_communicator.h"
#endif

namespace accordion::benchmarks {
namespace {

std::unique_ptr<Communicator> connect_beside([[maybe_unused]] int rank,
                                             [[maybe_unused]] int world_size,
                                             [[maybe_unused]] int port) {
#ifdef ACCORDION_WITH_GLOO
  const GlooStore store({.rank = rank,
                         .world_size = world_size,
                         .local_rank = rank,
                         .local_world_size = world_size,
                         .port = port},
                        std::chrono::minutes(1));
  return connect_gloo(
      store, {.rank = rank, .world_size = world_size, .name = "benchmark"});
#else
  return nullptr;
#endif
}

class Table {
 public:
  Table(Communicator& shm, Communicator* gloo, RankClock& clock)
      : shm_(shm), gloo_(gloo), clock_(clock) {}

  void print(double largest_mb) {
    if (shm_.rank() == 0) {
      std::printf("%-20s %7s %10s %10s %10s %6s %7s %7s %10s %6s\n", "", "KB",
                  "median us", "least us", "cpu us", "GB/s", "limit", "by cpu",
                  "gloo us", "ratio");
    }
    report(Collective::Barrier, DType::Float32, 0);
    for (const DType dtype : {DType::Float32, DType::Bfloat16}) {
      for (const Collective collective :
           {Collective::AllGather, Collective::ReduceScatter,
            Collective::AllReduce}) {
        for (double mb = 1.0 / 256; mb <= largest_mb; mb *= 4) {
          report(collective, dtype, static_cast<std::int64_t>(mb * 1048576));
        }
      }
    }
  }

 private:
  void report(Collective collective, DType dtype, std::int64_t bytes) {
    const CollectiveCalls ours(shm_, collective, dtype, bytes);
    std::unique_ptr<CollectiveCalls> theirs;
    if (gloo_ != nullptr) {
      theirs =
          std::make_unique<CollectiveCalls>(*gloo_, collective, dtype, bytes);
    }
    const MemoryLimit limit(shm_.world_size(), bytes);
    std::vector<std::function<void()>> calls = limit.calls();
    const std::size_t first = calls.size();
    calls.push_back(ours.call());
    if (theirs) {
      calls.push_back(theirs->call());
    }
    const std::vector<Times> times = clock_.time_by_turns(calls, bytes);
    if (shm_.rank() != 0) {
      return;
    }
    const Times& mine = times[first];
    std::printf("%-14s %-5s %7.0f %10.1f %10.1f %10.1f", name(collective),
                std::string(name(dtype)).c_str(),
                static_cast<double>(bytes) / 1024, mine.median * 1e6,
                mine.least * 1e6, mine.processor * 1e6);
    if (bytes > 0) {
      const Traffic traffic = ours.traffic();
      const auto of_limit = [&](double Times::*kind) {
        return 100 * limit.seconds(traffic, times, kind) / (mine.*kind);
      };
      std::printf(" %6.1f %5.0f %% %5.0f %%",
                  traffic.bytes() / mine.least / 1e9, of_limit(&Times::least),
                  of_limit(&Times::processor));
    } else {
      std::printf(" %22s", "");
    }
    if (theirs) {
      std::printf(" %10.1f %6.1f", times[first + 1].least * 1e6,
                  times[first + 1].least / mine.least);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  Communicator& shm_;
  Communicator* gloo_;  // or null
  RankClock& clock_;
};

void run_rank(int rank, int world_size, double largest_mb, RankClock& clock,
              int job) {
  const auto shm = connect_shm({.rank = rank,
                                .world_size = world_size,
                                .name = "benchmark-" + std::to_string(job)});
  const auto gloo = connect_beside(rank, world_size, 20'000 + job % 10'000);
  clock.begin(*shm);
  Table(*shm, gloo.get(), clock).print(largest_mb);
}

}  // namespace
}  // namespace accordion::benchmarks

int main(int argc, char** argv) {
  using namespace accordion::benchmarks;
  const int world_size = argc > 1 ? std::atoi(argv[1]) : 2;
  const double largest_mb = argc > 2 ? std::atof(argv[2]) : 256;
  const int job = getpid();
  RankClock clock(world_size);
  int rank = 0;
  for (int child = 1; child < world_size && rank == 0; ++child) {
    rank = fork() == 0 ? child : 0;
  }
  run_rank(rank, world_size, largest_mb, clock, job);
  while (rank == 0 && wait(nullptr) > 0) {
  }
  return 0;
}
