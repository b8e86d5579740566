// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/fake/fake_communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "tests/comm/collective_checks.h"

namespace accordion::testing {
namespace {

std::int64_t physical_memory() {
  return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

TEST(FakeCommunicator, PeersHoldCopiesOfThisRanksData) {
  const auto communicator = make_fake_communicator(2, 4);
  const std::vector<float> local = {1.0f, 2.0f};
  std::vector<float> full(8);
  const GatherPart gather = {local.data(), DType::Float32, full.data(),
                             DType::Float32, 2};
  communicator->all_gather_into({&gather, 1}, nullptr, "unit").wait();
  EXPECT_EQ(full, (std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2}));
  full = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<float> sum(2, 100.0f);
  const ReducePart reduce = {full.data(),
                             DType::Float32,
                             sum.data(),
                             DType::Float32,
                             DType::Float32,
                             2,
                             0.5,
                             true};
  communicator->reduce_scatter_into({&reduce, 1}, nullptr, "unit").wait();
  EXPECT_EQ(sum, (std::vector<float>{100 + 4 * 4 / 2, 100 + 4 * 5 / 2}));
}

TEST(FakeCommunicator, CountsAsOtherBackendsDo) {
  check_counters(*make_fake_communicator(1, 3));
  // Memory for one piece only would do: no world is too large to count.
  EXPECT_EQ(make_fake_communicator(16'383, 16'384)->world_size(), 16'384);
}

TEST(FakeCommunicator, WorldOfOneIsALocalCopy) {
  for (const Memory memory : {Memory::CommBuffers, Memory::Ordinary}) {
    check_collectives(*make_fake_communicator(0, 1), memory);
    check_sums_repeat(*make_fake_communicator(0, 1), memory);
  }
}

TEST(MetaCommunicator, CountsWhatHasNoMemoryAndMovesWhatHas) {
  const auto communicator = make_meta_communicator(2, 4096);
  EXPECT_FALSE(communicator->has_memory());
  // Twice what this machine has, and no more: the thread sanitizer leaves a
  // process 1.5 TiB of addresses.
  const std::int64_t numel = 2 * physical_memory() / 4096 / 4;
  const std::int64_t bytes = 4096 * numel * 4;
  const auto slot = communicator->allocate_common(bytes, "slots");
  double squares = 1.0;
  const GatherPart gather{.local = nullptr,
                          .local_dtype = DType::Float32,
                          .full = slot->data(),
                          .full_dtype = DType::Float32,
                          .numel = numel};
  const ReducePart reduce{.full = slot->data(),
                          .full_dtype = DType::Bfloat16,
                          .local = nullptr,
                          .local_dtype = DType::Float32,
                          .reduce_dtype = DType::Float32,
                          .numel = numel,
                          .sum_of_squares = &squares};
  communicator->all_gather_into({&gather, 1}, slot.get(), "unit").wait();
  communicator->reduce_scatter_into({&reduce, 1}, slot.get(), "unit").wait();
  EXPECT_EQ(squares, 0.0);
  const CommCounters& counters = communicator->counters();
  EXPECT_EQ(counters.bytes_of(CommOp::AllGather), bytes);
  EXPECT_EQ(counters.bytes_of(CommOp::ReduceScatter), bytes / 2);

  const auto two = make_meta_communicator(1, 2);
  const float mine = 3.0F;
  std::vector<float> all(2);
  const GatherPart number{.local = &mine,
                          .local_dtype = DType::Float32,
                          .full = all.data(),
                          .full_dtype = DType::Float32,
                          .numel = 1};
  two->all_gather_into({&number, 1}, nullptr, "number").wait();
  EXPECT_EQ(all, (std::vector<float>{3, 3}));
}

TEST(FakeCommunicator, RankOutsideTheWorldIsAnError) {
  EXPECT_NE(message_of([] {
              make_fake_communicator(4, 4);
            }).find("rank 4 of 4: ranks count from 0"),
            std::string::npos);
}

TEST(FakeCommunicator, MoreMemoryThanThereIsIsAnError) {
  EXPECT_NE(message_of([] {
              (void)make_fake_communicator(0, 1)->allocate_common(
                  std::int64_t{1} << 50, "slots");
            }).find("cannot allocate 1125899906842624 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
