// SPDX-License-Identifier: BSD-3-Clause
// Speed of offloaded blocks on a disk, beside dd.
//
//   $ build/bin/offload_benchmark FOLDER [MiB = 1024] [block MiB = 64]
//       [rounds = 5]
//
// Blocks pass through three buffers: written one after the other, read, and
// changed (read and written), which is what an optimizer does with its moments.
// dd moves as many bytes past the page cache (bs=4M, iflag=direct or
// oflag=direct) from and to memory; beside "changed" one dd reads while another
// one writes. All ways take turns, in another order each round; MB/s of bytes
// read plus bytes written, by the clock, least, median and most of the rounds.
// "in flight" is the share of the time in which the disk had anything to do,
// and "reads in time" the share of blocks that were there when they were
// acquired. The data is not compressible.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accordion/offload/nvme_store.h"
#include "accordion/offload/staged_blocks.h"
#include "benchmarks/dd.h"

namespace accordion::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr int kBuffers = 3;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Ways {
  fs::path folder;
  std::vector<std::int64_t> block_bytes;
  const Source* source;
};

/// One way to move bytes, over all rounds.
struct Row {
  std::string name;
  std::vector<double> mb_per_second = {};
  double share_in_flight = 0;
  double reads_in_time = 0;
};

class Staged {
 public:
  Staged(const Ways& ways, NvmeIo io, bool direct)
      : ways_(ways),
        blocks_(make_nvme_store({.folder = ways.folder,
                                 .block_bytes = ways.block_bytes,
                                 .io = io,
                                 .direct = direct}),
                ways.block_bytes, kBuffers) {}

  [[nodiscard]] std::string describe() const { return blocks_.describe(); }

  /// Of blocks that were never written, so that nothing is read.
  void write() {
    for (int block = 0; block < num_blocks(); ++block) {
      const std::span<std::byte> bytes = blocks_.acquire(block);
      std::memcpy(bytes.data(), ways_.source->data() + offset_, bytes.size());
      offset_ += static_cast<std::int64_t>(bytes.size());
      blocks_.release(block, Use::Changed);
    }
    blocks_.flush();
  }
  void read() { use(Use::Unchanged); }
  void read_and_write() { use(Use::Changed); }

  [[nodiscard]] OffloadCounters counters() const { return blocks_.counters(); }

 private:
  [[nodiscard]] int num_blocks() const {
    return static_cast<int>(ways_.block_bytes.size());
  }

  void use(Use use) {
    for (int block = 0; block < num_blocks(); ++block) {
      const std::span<std::byte> bytes = blocks_.acquire(block);
      for (int ahead = block + 1;
           ahead < std::min(block + kBuffers, num_blocks()); ++ahead) {
        blocks_.prefetch(ahead);
      }
      bytes[0] ^= use == Use::Changed ? std::byte{1} : std::byte{0};
      blocks_.release(block, use);
    }
    blocks_.flush();
  }

  const Ways& ways_;
  StagedBlocks blocks_;
  std::int64_t offset_ = 0;
};

class Table {
 public:
  explicit Table(const Ways& ways)
      : ways_(ways), dd_(ways.folder, *ways.source) {
    for (const char* way : {"dd", "io_uring", "threads", "page cache"}) {
      for (const char* what : {"write", "read", "change"}) {
        rows_.push_back({std::string(what) + ", " + way});
      }
    }
  }

  void round(int number) {
    for (int turn = 0; turn < 4; ++turn) {
      const int way = (turn + number) % 4;
      if (way == 0) {
        time_dd();
      } else {
        time_staged(static_cast<std::size_t>(way),
                    way == 1 ? NvmeIo::Uring : NvmeIo::Threads, way != 3);
      }
    }
  }

  void print() const {
    std::printf("\n%-20s %6s %6s %6s  %6s %10s %14s\n", "MB/s", "least",
                "median", "most", "of dd", "in flight", "reads in time");
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (row.mb_per_second.empty()) {
        continue;
      }
      const std::vector<double> sorted = in_order(row);
      std::printf("%-20s %6.0f %6.0f %6.0f %6.0f %%", row.name.c_str(),
                  sorted.front(), sorted[sorted.size() / 2], sorted.back(),
                  100 * sorted[sorted.size() / 2] / median(rows_[i % 3]));
      if (i >= 3) {
        const auto rounds = static_cast<double>(sorted.size());
        std::printf(" %8.0f %% %12.0f %%", 100 * row.share_in_flight / rounds,
                    100 * row.reads_in_time / rounds);
      }
      std::printf("\n");
    }
  }

 private:
  static std::vector<double> in_order(const Row& row) {
    std::vector<double> sorted = row.mb_per_second;
    std::ranges::sort(sorted);
    return sorted;
  }
  static double median(const Row& row) {
    return in_order(row)[row.mb_per_second.size() / 2];
  }

  [[nodiscard]] double total_mb() const {
    std::int64_t bytes = 0;
    for (const std::int64_t block : ways_.block_bytes) {
      bytes += block;
    }
    return static_cast<double>(bytes) / 1e6;
  }

  void time_dd() {
    const auto add = [&](std::size_t row, double moved,
                         const std::function<void()>& body) {
      rows_[row].mb_per_second.push_back(moved / seconds_of(body));
    };
    add(0, total_mb(), [&] { dd_.write(); });
    add(1, total_mb(), [&] { dd_.read(); });
    add(2, 2 * total_mb(), [&] { dd_.read_and_write(); });
  }

  void time_staged(std::size_t way, NvmeIo io, bool direct) {
    std::unique_ptr<Staged> staged;
    try {
      staged = std::make_unique<Staged>(ways_, io, direct);
    } catch (const OffloadError& error) {
      std::printf("%s\n", error.what());
      return;
    }
    if (rows_[3 * way].mb_per_second.empty()) {
      std::printf("%s\n", staged->describe().c_str());
    }
    time_one(rows_[3 * way], *staged, total_mb(), &Staged::write);
    time_one(rows_[3 * way + 1], *staged, total_mb(), &Staged::read);
    time_one(rows_[3 * way + 2], *staged, 2 * total_mb(),
             &Staged::read_and_write);
  }

  static void time_one(Row& row, Staged& staged, double moved,
                       void (Staged::*body)()) {
    const OffloadCounters before = staged.counters();
    const double seconds = seconds_of([&] { (staged.*body)(); });
    const OffloadCounters after = staged.counters();
    row.mb_per_second.push_back(moved / seconds);
    row.share_in_flight +=
        (after.seconds_in_flight - before.seconds_in_flight) / seconds;
    const auto reads = static_cast<double>(after.reads - before.reads);
    row.reads_in_time +=
        static_cast<double>(after.reads_in_time - before.reads_in_time) /
        std::max(1.0, reads);
  }

  const Ways& ways_;
  Dd dd_;
  std::vector<Row> rows_;  // three for each way
};

void run(const fs::path& folder, std::int64_t total, std::int64_t block,
         int rounds) {
  const Source source(total / block * block);
  const Ways ways = {
      folder,
      std::vector<std::int64_t>(static_cast<std::size_t>(total / block), block),
      &source};
  Table table(ways);
  for (int round = 0; round < rounds; ++round) {
    table.round(round);
  }
  table.print();
}

}  // namespace
}  // namespace accordion::benchmarks

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [MiB] [block MiB] [rounds]\n",
                 argv[0]);
    return 2;
  }
  const auto argument = [&](int at, int fallback) {
    return argc > at ? std::max(1, std::atoi(argv[at])) : fallback;
  };
  constexpr std::int64_t kMib = 1 << 20;
  accordion::benchmarks::run(argv[1], argument(2, 1024) * kMib,
                             argument(3, 64) * kMib, argument(4, 5));
  return 0;
}
