// SPDX-License-Identifier: BSD-3-Clause
#include "tests/comm/collective_checks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "accordion/comm/elements.h"

namespace accordion::testing {
namespace {

using detail::convert;
using detail::offset;

// Element j of rank r: whole numbers up to 6 * 41, exact in every dtype.
double element(int rank, std::int64_t j) {
  return (rank + 1) * static_cast<double>(j % 41 + 1);
}

double sum_over_ranks(int world_size, std::int64_t j) {
  return world_size * (world_size + 1) / 2.0 * static_cast<double>(j % 41 + 1);
}

double rounded(double value, DType dtype) {
  std::byte narrow[8];
  convert(narrow, dtype, &value, DType::Float64, 1);
  convert(&value, DType::Float64, narrow, dtype, 1);
  return value;
}

// Memory for one operand: in a CommBuffer or not.
class Operand {
 public:
  Operand(Communicator& communicator, Memory memory, std::int64_t bytes,
          bool common) {
    if (memory == Memory::Ordinary) {
      storage_.resize(static_cast<std::size_t>(bytes));
    } else {
      buffer_ = common ? communicator.allocate_common(bytes, "operand")
                       : communicator.allocate_exported(bytes, "operand");
    }
  }
  std::byte* data() { return buffer_ ? buffer_->data() : storage_.data(); }
  CommBuffer* buffer() { return buffer_.get(); }

 private:
  std::unique_ptr<CommBuffer> buffer_;
  std::vector<std::byte> storage_;
};

void fill(void* data, DType dtype, std::int64_t first, std::int64_t numel,
          int rank) {
  for (std::int64_t j = 0; j < numel; ++j) {
    const double value = element(rank, first + j);
    convert(offset(data, dtype, j), dtype, &value, DType::Float64, 1);
  }
}

void expect_elements(const void* data, DType dtype, std::int64_t numel,
                     const std::function<double(std::int64_t)>& expected,
                     const std::string& what) {
  for (std::int64_t j = 0; j < numel; ++j) {
    double got = 0;
    convert(&got, DType::Float64, offset(data, dtype, j), dtype, 1);
    if (got != expected(j)) {
      ADD_FAILURE() << what << ": element " << j << " of " << numel << " is "
                    << got << ", expected " << expected(j);
      return;
    }
  }
}

// Sums what `local` holds in a way of its own.
void expect_squares(double got, const void* local, DType dtype,
                    std::int64_t numel, const std::string& what) {
  long double expected = 0;
  for (std::int64_t j = 0; j < numel; ++j) {
    double value = 0;
    convert(&value, DType::Float64, offset(local, dtype, j), dtype, 1);
    expected += static_cast<long double>(value) * value;
  }
  EXPECT_NEAR(got, static_cast<double>(expected), 1e-12 * expected)
      << what << ": sum of squares";
}

std::string describe(const Communicator& communicator, const char* what,
                     DType from, DType to, std::int64_t numel) {
  return std::string(what) + " of " + std::to_string(numel) + " " +
         std::string(name(from)) + " to " + std::string(name(to)) +
         " on rank " + std::to_string(communicator.rank()) + " of " +
         std::to_string(communicator.world_size());
}

// Two sections of different length and, in the buffer, at odd places.
void check_gather(Communicator& communicator, Memory memory, DType from,
                  DType to, std::int64_t numel) {
  const int world_size = communicator.world_size();
  const std::int64_t second = numel / 3 + 1;
  const std::int64_t start = 64;
  const std::int64_t second_start =
      start + (numel * world_size * element_bytes(to) + 63) / 64 * 64;
  Operand full(communicator, memory,
               second_start + second * world_size * element_bytes(to), true);
  std::vector<std::byte> local(
      static_cast<std::size_t>((numel + second) * element_bytes(from)));
  fill(local.data(), from, 0, numel + second, communicator.rank());
  const std::vector<GatherPart> parts = {
      {local.data(), from, full.data() + start, to, numel},
      {offset(local.data(), from, numel), from, full.data() + second_start, to,
       second}};
  communicator.all_gather_into(parts, full.buffer(), "gather").wait();
  const std::string what = describe(communicator, "gather", from, to, numel);
  for (int rank = 0; rank < world_size; ++rank) {
    expect_elements(
        offset(parts[0].full, to, rank * numel), to, numel,
        [&](std::int64_t j) { return element(rank, j); }, what);
    expect_elements(
        offset(parts[1].full, to, rank * second), to, second,
        [&](std::int64_t j) { return element(rank, numel + j); }, what);
  }
  if (full.buffer() != nullptr) {
    communicator.release(*full.buffer());
  }
}

struct Reduction {
  DType wire;
  DType reduce;
  DType local;
  double scale;
  bool accumulate;
};

constexpr double kBefore = 3;  // what `local` holds before accumulation

double reduced(const Reduction& reduction, int world_size, std::int64_t j) {
  const double sum = rounded(sum_over_ranks(world_size, j) * reduction.scale,
                             reduction.reduce);
  return rounded(reduction.accumulate ? sum + kBefore : sum, reduction.local);
}

std::vector<std::byte> filled_local(DType dtype, std::int64_t numel) {
  std::vector<std::byte> local(
      static_cast<std::size_t>(numel * element_bytes(dtype)));
  for (std::int64_t j = 0; j < numel; ++j) {
    convert(offset(local.data(), dtype, j), dtype, &kBefore, DType::Float64, 1);
  }
  return local;
}

void check_reduce_scatter(Communicator& communicator, Memory memory,
                          const Reduction& reduction, std::int64_t numel) {
  const int world_size = communicator.world_size();
  const DType wire = reduction.wire;
  const std::int64_t all = numel * world_size;
  Operand full(communicator, memory, 128 + all * element_bytes(wire), false);
  std::byte* data = full.data() + 128;
  fill(data, wire, 0, all, communicator.rank());
  std::vector<std::byte> local = filled_local(reduction.local, numel);
  double squares = -1;
  const ReducePart part = {data,
                           wire,
                           local.data(),
                           reduction.local,
                           reduction.reduce,
                           numel,
                           reduction.scale,
                           reduction.accumulate,
                           &squares};
  communicator.reduce_scatter_into({&part, 1}, full.buffer(), "scatter").wait();
  const std::int64_t first = communicator.rank() * numel;
  expect_elements(
      local.data(), reduction.local, numel,
      [&](std::int64_t j) { return reduced(reduction, world_size, first + j); },
      describe(communicator, "reduce-scatter", wire, reduction.local, numel));
  expect_squares(
      squares, local.data(), reduction.local, numel,
      describe(communicator, "reduce-scatter", wire, reduction.local, numel));
  if (full.buffer() != nullptr) {
    communicator.acquire(*full.buffer());
  }
}

void check_all_reduce(Communicator& communicator, Memory memory,
                      const Reduction& reduction, std::int64_t numel,
                      bool in_place) {
  const int world_size = communicator.world_size();
  const DType wire = reduction.wire;
  Operand full(communicator, memory, numel * element_bytes(wire) + 1, false);
  fill(full.data(), wire, 0, numel, communicator.rank());
  std::vector<std::byte> local = filled_local(reduction.local, numel);
  double squares = -1;
  const ReducePart part = {full.data(),
                           wire,
                           in_place ? full.data() : local.data(),
                           reduction.local,
                           reduction.reduce,
                           numel,
                           reduction.scale,
                           reduction.accumulate,
                           &squares};
  communicator.all_reduce({&part, 1}, full.buffer(), "all-reduce").wait();
  expect_elements(
      part.local, reduction.local, numel,
      [&](std::int64_t j) { return reduced(reduction, world_size, j); },
      describe(communicator, "all-reduce", wire, reduction.local, numel));
  expect_squares(
      squares, part.local, reduction.local, numel,
      describe(communicator, "all-reduce", wire, reduction.local, numel));
  if (full.buffer() != nullptr) {
    communicator.acquire(*full.buffer());
  }
}

void check_broadcast(Communicator& communicator) {
  for (int root = 0; root < communicator.world_size(); ++root) {
    std::vector<std::int32_t> data(300'001);
    for (std::size_t j = 0; j < data.size(); ++j) {
      data[j] = communicator.rank() * 1'000'000 + static_cast<int>(j);
    }
    communicator.broadcast(data.data(),
                           static_cast<std::int64_t>(data.size() * 4), root,
                           "broadcast");
    // The fake backend's peers hold this rank's data.
    const int from =
        communicator.backend() == "fake" ? communicator.rank() : root;
    EXPECT_EQ(data.front(), from * 1'000'000);
    EXPECT_EQ(data.back(), from * 1'000'000 + 300'000);
  }
}

}  // namespace

void check_collectives(Communicator& communicator, Memory memory) {
  using enum DType;
  for (const std::int64_t numel : {1, 7, 1000, 70'001}) {
    check_gather(communicator, memory, Float32, Float32, numel);
    check_gather(communicator, memory, Float32, Bfloat16, numel);
  }
  check_gather(communicator, memory, Float32, Float16, 33);
  check_gather(communicator, memory, Float32, Float16, 5000);
  check_gather(communicator, memory, Bfloat16, Float32, 33);
  check_gather(communicator, memory, Float64, Float64, 33);
  check_gather(communicator, memory, Float64, Bfloat16, 5000);
  const std::vector<Reduction> reductions = {
      {Float32, Float32, Float32, 1.0, false},
      {Float32, Float32, Float32, 0.25, true},
      {Float32, Bfloat16, Float32, 1.0, false},
      {Bfloat16, Float32, Float32, 0.5, false},
      {Bfloat16, Bfloat16, Float32, 1.0, true},
      {Bfloat16, Bfloat16, Bfloat16, 0.125, true},
      {Float16, Float16, Float32, 1.0, false},
      {Float16, Float32, Float32, 0.5, false},
      {Float64, Float64, Float64, 0.1, true},
  };
  for (const Reduction& reduction : reductions) {
    for (const std::int64_t numel : {1, 9, 2049, 20'011}) {
      check_reduce_scatter(communicator, memory, reduction, numel);
      check_all_reduce(communicator, memory, reduction, numel, false);
    }
  }
  check_all_reduce(communicator, memory, reductions[0], 10'007, true);
  check_all_reduce(communicator, memory,
                   {Bfloat16, Bfloat16, Bfloat16, 1.0, false}, 777, true);
  check_broadcast(communicator);
  communicator.barrier("end of check");
}

void check_counters(Communicator& communicator) {
  const CommCounters before = communicator.counters();
  const std::int64_t world_size = communicator.world_size();
  std::vector<float> full(static_cast<std::size_t>(40 * world_size), 1.0f);
  std::vector<float> local(40, 1.0f);
  const GatherPart gather = {local.data(), DType::Float32, full.data(),
                             DType::Bfloat16, 40};
  const ReducePart reduce = {full.data(),    DType::Float32, local.data(),
                             DType::Float32, DType::Float32, 40};
  communicator.all_gather_into({&gather, 1}, nullptr, "a").wait();
  communicator.reduce_scatter_into({&reduce, 1}, nullptr, "b").wait();
  communicator.all_reduce({&reduce, 1}, nullptr, "c").wait();
  communicator.broadcast(local.data(), 12, 0, "d");
  communicator.barrier("e");
  const auto bytes = [&](CommOp op) {
    return communicator.counters().bytes_of(op) - before.bytes_of(op);
  };
  EXPECT_EQ(bytes(CommOp::AllGather), 40 * 2 * world_size);
  EXPECT_EQ(bytes(CommOp::ReduceScatter), 40 * 4 * world_size);
  EXPECT_EQ(bytes(CommOp::AllReduce), 40 * 4);
  EXPECT_EQ(bytes(CommOp::Broadcast), 12);
  EXPECT_EQ(bytes(CommOp::Barrier), 0);
  for (const CommOp op :
       {CommOp::AllGather, CommOp::ReduceScatter, CommOp::AllReduce,
        CommOp::Broadcast, CommOp::Barrier}) {
    EXPECT_EQ(communicator.counters().calls_of(op) - before.calls_of(op), 1);
  }
}

void check_slot_reuse(Communicator& communicator, int num_rounds) {
  constexpr std::int64_t kNumel = 3001;
  constexpr std::size_t kSlots = 2;
  const int world_size = communicator.world_size();
  const int me = communicator.rank();
  const std::int64_t bytes = kNumel * world_size * 4;
  std::vector<std::unique_ptr<CommBuffer>> slots;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    slots.push_back(communicator.allocate_common(bytes, "slot"));
  }
  const auto gradients = communicator.allocate_exported(bytes, "gradients");
  std::vector<std::vector<float>> locals(kSlots);
  std::vector<float> sum(kNumel);
  std::mt19937 random(1234u + static_cast<unsigned>(me));
  const auto dawdle = [&] {
    if (random() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
  };
  const auto start_gather = [&](int round) {
    const auto slot = static_cast<std::size_t>(round) % kSlots;
    locals[slot].assign(kNumel, static_cast<float>(round * 10 + me));
    const GatherPart part = {locals[slot].data(), DType::Float32,
                             slots[slot]->data(), DType::Float32, kNumel};
    return communicator.all_gather_into({&part, 1}, slots[slot].get(), "unit");
  };
  Work next = start_gather(0);
  for (int round = 0; round < num_rounds; ++round) {
    dawdle();
    Work current = std::move(next);
    if (round + 1 < num_rounds) {
      next = start_gather(round + 1);
    }
    current.wait();
    dawdle();
    CommBuffer& slot = *slots[static_cast<std::size_t>(round) % kSlots];
    const auto* full = reinterpret_cast<const float*>(slot.data());
    for (int rank = 0; rank < world_size; ++rank) {
      ASSERT_EQ(full[rank * kNumel], static_cast<float>(round * 10 + rank));
      ASSERT_EQ(full[(rank + 1) * kNumel - 1],
                static_cast<float>(round * 10 + rank));
    }
    // Most rounds gather only: a reduction would keep the ranks in step.
    if (round % 4 != 0) {
      communicator.release(slot);
      continue;
    }
    communicator.acquire(*gradients);
    std::memcpy(gradients->data(), full, static_cast<std::size_t>(bytes));
    communicator.release(slot);
    const ReducePart part = {gradients->data(), DType::Float32, sum.data(),
                             DType::Float32,    DType::Float32, kNumel};
    Work reduction =
        communicator.reduce_scatter_into({&part, 1}, gradients.get(), "unit");
    dawdle();
    reduction.wait();
    ASSERT_EQ(sum[kNumel / 2],
              static_cast<float>(world_size * (round * 10 + me)));
  }
}

void check_sums_repeat(Communicator& communicator, Memory memory,
                       int ranks_per_host) {
  constexpr std::int64_t kNumel = 5003;
  const int world_size = communicator.world_size();
  const int block = ranks_per_host == 0 ? world_size : ranks_per_host;
  const auto operand = [&](int rank, std::int64_t j) {
    return std::sin(static_cast<float>(j * 7 + rank * 131)) *
           std::pow(10.0f, static_cast<float>((j + rank) % 7 - 3));
  };
  Operand full(communicator, memory, kNumel * 4, false);
  auto* values = reinterpret_cast<float*>(full.data());
  std::vector<float> sums(kNumel);
  for (int repeat = 0; repeat < 2; ++repeat) {
    if (full.buffer() != nullptr) {
      communicator.acquire(*full.buffer());
    }
    for (std::int64_t j = 0; j < kNumel; ++j) {
      values[j] = operand(communicator.rank(), j);
    }
    double squares = 0;
    const ReducePart part = {.full = values,
                             .full_dtype = DType::Float32,
                             .local = sums.data(),
                             .local_dtype = DType::Float32,
                             .reduce_dtype = DType::Float32,
                             .numel = kNumel,
                             .sum_of_squares = &squares};
    communicator.all_reduce({&part, 1}, full.buffer(), "repeat").wait();
    detail::SquareSum of_sums;
    of_sums.add(sums.data(), DType::Float32, kNumel);
    ASSERT_EQ(squares, of_sums.total());
    for (std::int64_t j = 0; j < kNumel; ++j) {
      float expected = 0;
      for (int host = 0; host < world_size; host += block) {
        float of_host = operand(host, j);
        for (int rank = host + 1; rank < host + block; ++rank) {
          of_host += operand(rank, j);
        }
        expected += of_host;
      }
      ASSERT_EQ(sums[static_cast<std::size_t>(j)], expected) << "element " << j;
    }
  }
}

void run_threads(std::vector<std::unique_ptr<Communicator>>& ranks,
                 const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&body, &rank] {
      try {
        body(*rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank->rank() << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an exception";
  return "";
}

}  // namespace accordion::testing
