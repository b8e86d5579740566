// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/shm_communicator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <span>
#include <thread>

#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Communicator> connect(const RankContext& context) {
  return connect_shm({.rank = context.rank,
                      .world_size = context.world_size,
                      .name = context.session,
                      .timeout = std::chrono::seconds(30)});
}

const RankProgram kCollectives("shm_collectives", [](const RankContext& c) {
  const auto communicator = connect(c);
  check_collectives(*communicator, Memory::CommBuffers);
  check_collectives(*communicator, Memory::Ordinary);
  check_counters(*communicator);
  check_sums_repeat(*communicator, Memory::CommBuffers);
  check_sums_repeat(*communicator, Memory::Ordinary);
});

const RankProgram kSlotReuse("shm_slot_reuse", [](const RankContext& c) {
  check_slot_reuse(*connect(c), 400);
});

// Each rank allocates, and reports what it got.
const RankProgram kPeersSeeExports("shm_exports", [](const RankContext& c) {
  const auto communicator = connect(c);
  const auto common = communicator->allocate_common(10, "common");
  EXPECT_EQ(common->bytes(), 10);
  EXPECT_EQ(common->data()[9], std::byte{0});
  communicator->barrier("zero everywhere");
  if (c.rank == 0) {
    common->data()[9] = std::byte{42};
  }
  communicator->barrier("written");
  EXPECT_EQ(common->data()[9], std::byte{42});
});

/// Pieces that live in the buffer which they are gathered in, written and read
/// in turn with random pauses: one that is read before it is written, or
/// written before its last reader is done, shows as a wrong value.
void check_gathers_in_place(Communicator& communicator, int num_rounds) {
  constexpr std::int64_t kNumel = 3001;
  const int world_size = communicator.world_size();
  const int me = communicator.rank();
  EXPECT_EQ(communicator.shares_common_memory(), world_size > 1);
  if (world_size == 1) {
    return;  // of one rank alone
  }
  const std::int64_t bytes = kNumel * world_size * 4;
  const auto buffer = communicator.allocate_common(bytes, "unit");
  auto* const full = reinterpret_cast<float*>(buffer->data());
  const GatherPart part = {full + me * kNumel, DType::Float32, full,
                           DType::Float32, kNumel};
  std::mt19937 random(4321u + static_cast<unsigned>(me));
  const auto dawdle = [&] {
    if (random() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
  };
  const CommCounters before = communicator.counters();
  for (int round = 0; round < num_rounds; ++round) {
    communicator.acquire(*buffer);
    std::fill_n(full + me * kNumel, kNumel,
                static_cast<float>(round * 10 + me));
    dawdle();
    communicator.all_gather_into({&part, 1}, buffer.get(), "unit").wait();
    dawdle();
    for (int rank = 0; rank < world_size; ++rank) {
      const auto expected = static_cast<float>(round * 10 + rank);
      ASSERT_EQ(full[rank * kNumel], expected);
      ASSERT_EQ(full[(rank + 1) * kNumel - 1], expected);
    }
    communicator.release(*buffer);
  }
  const CommCounters& after = communicator.counters();
  EXPECT_EQ(after.calls_of(CommOp::AllGather),
            before.calls_of(CommOp::AllGather) + num_rounds);
  EXPECT_EQ(after.bytes_of(CommOp::AllGather),
            before.bytes_of(CommOp::AllGather) + num_rounds * bytes);
}

const RankProgram kInPlace("shm_in_place", [](const RankContext& c) {
  check_gathers_in_place(*connect(c), 400);
});

class ShmWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ShmWorld, ::testing::Values(1, 2, 3, 4));

TEST_P(ShmWorld, CollectivesAreRightBetweenProcesses) {
  expect_ranks_pass(kCollectives, GetParam());
}

TEST_P(ShmWorld, CollectivesAreRightBetweenThreads) {
  auto ranks = make_local_shm_group(GetParam(), milliseconds(30'000));
  run_threads(ranks, [](Communicator& communicator) {
    check_collectives(communicator, Memory::CommBuffers);
    check_collectives(communicator, Memory::Ordinary);
    check_counters(communicator);
    check_sums_repeat(communicator, Memory::CommBuffers);
    check_sums_repeat(communicator, Memory::Ordinary);
  });
}

TEST_P(ShmWorld, SlotsAreNotOverwrittenBeforeTheirLastReader) {
  expect_ranks_pass(kSlotReuse, GetParam());
  auto ranks = make_local_shm_group(GetParam(), milliseconds(30'000));
  run_threads(ranks, [](Communicator& communicator) {
    check_slot_reuse(communicator, 400);
  });
}

TEST_P(ShmWorld, PiecesInPlaceAreReadAsTheyWereWritten) {
  expect_ranks_pass(kInPlace, GetParam());
  auto ranks = make_local_shm_group(GetParam(), milliseconds(30'000));
  run_threads(ranks, [](Communicator& communicator) {
    check_gathers_in_place(communicator, 400);
  });
}

TEST(ShmCommunicator, CommonBufferIsTheSameMemoryOnEveryRank) {
  expect_ranks_pass(kPeersSeeExports, 3);
}

void with_two_ranks(const std::function<void(Communicator&)>& body) {
  auto ranks = make_local_shm_group(2, milliseconds(20'000));
  run_threads(ranks, body);
}

// Rank 0 issues the gather after the reduction but waits for it first.
TEST(ShmCommunicator, GatherOvertakesReduction) {
  with_two_ranks([](Communicator& communicator) {
    const auto gradients = communicator.allocate_exported(800, "gradients");
    const auto slot = communicator.allocate_common(800, "slot");
    std::vector<float> local(100, 1.0f);
    const ReducePart reduce = {gradients->data(), DType::Float32, local.data(),
                               DType::Float32,    DType::Float32, 100};
    const GatherPart gather = {local.data(), DType::Float32, slot->data(),
                               DType::Float32, 100};
    Work reduction;
    if (communicator.rank() == 0) {
      reduction =
          communicator.reduce_scatter_into({&reduce, 1}, gradients.get(), "g");
    }
    communicator.all_gather_into({&gather, 1}, slot.get(), "p").wait();
    if (communicator.rank() == 1) {
      reduction =
          communicator.reduce_scatter_into({&reduce, 1}, gradients.get(), "g");
    }
    reduction.wait();
    EXPECT_EQ(local[0], 0.0f);
  });
}

// Operations on ordinary memory take their rounds in the order of issue, even
// where the ranks wait in another.
TEST(ShmCommunicator, RanksMayWaitInDifferentOrder) {
  with_two_ranks([](Communicator& communicator) {
    std::vector<float> local(1000, 1.0f);
    std::vector<float> full(2000);
    std::vector<float> ones(2000, 1.0f);
    std::vector<float> sum(1000);
    const GatherPart gather = {local.data(), DType::Float32, full.data(),
                               DType::Float32, 1000};
    const ReducePart reduce = {ones.data(),    DType::Float32, sum.data(),
                               DType::Float32, DType::Float32, 1000};
    Work first = communicator.all_gather_into({&gather, 1}, nullptr, "a");
    Work second = communicator.reduce_scatter_into({&reduce, 1}, nullptr, "b");
    (communicator.rank() == 0 ? first : second).wait();
    (communicator.rank() == 0 ? second : first).wait();
    EXPECT_EQ(full[1999], 1.0f);
    EXPECT_EQ(sum[999], 2.0f);
  });
}

// Several rounds of the staging area against one pass over shared memory.
TEST(ShmCommunicator, PathOfAReductionDoesNotShow) {
  auto ranks = make_local_shm_group(3, milliseconds(20'000));
  run_threads(ranks, [](Communicator& communicator) {
    constexpr std::int64_t kNumel = 400'007;
    const auto shared = communicator.allocate_exported(12 * kNumel, "g");
    auto* values = reinterpret_cast<float*>(shared->data());
    for (std::int64_t j = 0; j < 3 * kNumel; ++j) {
      values[j] = 1.0f / static_cast<float>(j % 9973 + communicator.rank() + 1);
    }
    const std::vector<float> ordinary(values, values + 3 * kNumel);
    std::vector<float> direct(kNumel);
    std::vector<float> staged(kNumel);
    double squares[2] = {};
    const ReducePart from_shared = {
        values,         DType::Float32, direct.data(), DType::Float32,
        DType::Float32, kNumel,         0.3,           false,
        &squares[0]};
    const ReducePart from_ordinary = {
        ordinary.data(), DType::Float32, staged.data(), DType::Float32,
        DType::Float32,  kNumel,         0.3,           false,
        &squares[1]};
    communicator.reduce_scatter_into({&from_shared, 1}, shared.get(), "a")
        .wait();
    communicator.reduce_scatter_into({&from_ordinary, 1}, nullptr, "b").wait();
    EXPECT_EQ(direct, staged);
    EXPECT_EQ(squares[0], squares[1]);
    communicator.acquire(*shared);
    communicator.all_reduce({&from_shared, 1}, shared.get(), "c").wait();
    communicator.all_reduce({&from_ordinary, 1}, nullptr, "d").wait();
    EXPECT_EQ(direct, staged);
    EXPECT_EQ(squares[0], squares[1]);
  });
}

// A copy of a piece to where it lies would be a write to memory that none may
// write to.
TEST(ShmCommunicator, GatherMovesNothingOfWhatLiesInPlace) {
  with_two_ranks([](Communicator& communicator) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto numel = static_cast<std::int64_t>(page / sizeof(float));
    const auto buffer = communicator.allocate_common(4 * numel * 4, "unit");
    auto* const first = reinterpret_cast<float*>(buffer->data());
    auto* const second = first + 2 * numel;
    float* const mine = first + communicator.rank() * numel;
    std::fill_n(mine, numel, 1.0f + static_cast<float>(communicator.rank()));
    const std::vector<float> moved(static_cast<std::size_t>(numel), 5.0f);
    const std::vector<GatherPart> parts = {
        {mine, DType::Float32, first, DType::Float32, numel},
        {moved.data(), DType::Float32, second, DType::Float32, numel}};
    ASSERT_EQ(mprotect(mine, page, PROT_READ), 0);
    for (const std::size_t count : {std::size_t{1}, parts.size()}) {
      communicator
          .all_gather_into(std::span(parts).first(count), buffer.get(), "unit")
          .wait();
      EXPECT_EQ(first[0], 1.0f);
      EXPECT_EQ(first[2 * numel - 1], 2.0f);
      communicator.release(*buffer);
    }
    EXPECT_EQ(second[0], 5.0f);
    EXPECT_EQ(second[2 * numel - 1], 5.0f);
    communicator.barrier("read");
    ASSERT_EQ(mprotect(mine, page, PROT_READ | PROT_WRITE), 0);
  });
}

// Tensors on it may be used for longer than a mesh.
TEST(ShmCommunicator, CommonMemoryMayOutliveTheCommunicator) {
  auto ranks = make_local_shm_group(2, milliseconds(20'000));
  std::vector<std::unique_ptr<CommBuffer>> buffers(2);
  run_threads(ranks, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    auto& buffer = buffers[static_cast<std::size_t>(rank)];
    buffer = communicator.allocate_common(2, "unit");
    buffer->data()[rank] = static_cast<std::byte>(7 + rank);
    communicator.barrier("written");
  });
  ranks.clear();
  EXPECT_EQ(buffers[0]->data()[1], std::byte{8});
  EXPECT_EQ(buffers[1]->data()[0], std::byte{7});
}

TEST(ShmCommunicator, StartDoesNotWaitForASlowReader) {
  with_two_ranks([](Communicator& communicator) {
    const auto slot = communicator.allocate_common(8, "slot");
    float mine = static_cast<float>(communicator.rank());
    const GatherPart part = {&mine, DType::Float32, slot->data(),
                             DType::Float32, 1};
    communicator.all_gather_into({&part, 1}, slot.get(), "one").wait();
    if (communicator.rank() == 1) {
      // Rank 0 passes this barrier only if its second gather did not block.
      communicator.barrier("rank 0 has started its second gather");
      EXPECT_EQ(reinterpret_cast<float*>(slot->data())[0], 0.0f);
    }
    communicator.release(*slot);
    mine = 7.0f;
    Work second = communicator.all_gather_into({&part, 1}, slot.get(), "two");
    if (communicator.rank() == 0) {
      communicator.barrier("rank 0 has started its second gather");
    }
    second.wait();
    EXPECT_EQ(reinterpret_cast<float*>(slot->data())[1], 7.0f);
  });
}

// Rank 1 reads late; rank 0 wants to write the next gradient at once.
TEST(ShmCommunicator, AcquireWaitsForTheLastReader) {
  with_two_ranks([](Communicator& communicator) {
    constexpr std::int64_t kNumel = 1000;
    const auto gradients = communicator.allocate_exported(8 * kNumel, "g");
    auto* values = reinterpret_cast<float*>(gradients->data());
    std::vector<float> sum(kNumel);
    const ReducePart part = {values,         DType::Float32, sum.data(),
                             DType::Float32, DType::Float32, kNumel};
    std::fill_n(values, 2 * kNumel, 1.0f);
    Work work =
        communicator.reduce_scatter_into({&part, 1}, gradients.get(), "unit");
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    work.wait();
    communicator.acquire(*gradients);
    std::fill_n(values, 2 * kNumel, 5.0f);
    EXPECT_EQ(sum[0], 2.0f);
    EXPECT_EQ(sum[kNumel - 1], 2.0f);
  });
}

TEST(ShmCommunicator, UnreleasedBufferIsAnErrorNotAHang) {
  with_two_ranks([](Communicator& communicator) {
    const auto slot = communicator.allocate_common(8, "slot");
    const float mine = 1.0f;
    const GatherPart part = {&mine, DType::Float32, slot->data(),
                             DType::Float32, 1};
    communicator.all_gather_into({&part, 1}, slot.get(), "one").wait();
    EXPECT_NE(message_of([&] {
                return communicator
                    .all_gather_into({&part, 1}, slot.get(), "two")
                    .wait();
              }).find("has not released buffer 'slot'"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                communicator.acquire(*slot);
              }).find("in use by this rank itself"),
              std::string::npos);
  });
}

TEST(ShmCommunicator, WrongBufferIsNamed) {
  with_two_ranks([](Communicator& communicator) {
    const auto slot = communicator.allocate_common(64, "my slot");
    float value[2] = {};
    const ReducePart part = {slot->data(),   DType::Float32, value,
                             DType::Float32, DType::Float32, 2};
    EXPECT_NE(
        message_of([&] {
          communicator.reduce_scatter_into({&part, 1}, slot.get(), "x").wait();
        }).find("buffer 'my slot' is of the wrong kind"),
        std::string::npos);
    const GatherPart outside = {value, DType::Float32, slot->data() + 60,
                                DType::Float32, 1};
    EXPECT_NE(
        message_of([&] {
          communicator.all_gather_into({&outside, 1}, slot.get(), "x").wait();
        }).find("does not lie in the buffer"),
        std::string::npos);
  });
}

TEST(ShmCommunicator, TooManyCallsInFlightIsAnError) {
  with_two_ranks([](Communicator& communicator) {
    float value[2] = {};
    const ReducePart part = {value,          DType::Float32, value + 1,
                             DType::Float32, DType::Float32, 1};
    std::vector<Work> works;
    for (int i = 0; i < 64; ++i) {
      works.push_back(communicator.all_reduce({&part, 1}, nullptr, "many"));
    }
    EXPECT_NE(message_of([&] {
                communicator.all_reduce({&part, 1}, nullptr, "many").wait();
              }).find("64 calls are in flight already"),
              std::string::npos);
    for (Work& work : works) {
      work.wait();
    }
  });
}

}  // namespace
}  // namespace accordion::testing
