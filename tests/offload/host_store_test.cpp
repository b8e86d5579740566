// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/host_store.h"

#include "tests/offload/offload_support.h"

namespace accordion::testing {
namespace {

using ::testing::HasSubstr;

TEST(HostStore, CopiesBlocksInAndOut) {
  HostPool pool(1 << 20);
  const auto store = make_host_store({5000, 1}, pool);
  const AlignedBytes there(5000);
  fill(there.get(), 0, 1);
  store->start_write(0, there.get());
  fill(there.get(), 0, 2);  // it was copied

  const AlignedBytes back(5000);
  store->start_read(0, back.get());
  EXPECT_FALSE(store->in_flight(0));
  store->wait(0);
  expect_version(back.get(), 0, 1);
  EXPECT_EQ(store->traffic().bytes_written, 8192);
  EXPECT_EQ(store->traffic().bytes_read, 8192);
  EXPECT_GT(store->traffic().seconds_in_flight, 0);
}

TEST(HostStore, TakesItsBlocksFromThePoolWhileItLives) {
  HostPool pool(1 << 20);
  {
    const auto one = make_host_store({5000, 1}, pool);
    EXPECT_EQ(one->held_bytes(), 12288);
    EXPECT_EQ(one->describe(), "copies, 12288 bytes of host memory");
    const auto other = make_host_store({4096}, pool);
    EXPECT_EQ(pool.held_bytes(), 16384);
  }
  EXPECT_EQ(pool.held_bytes(), 0);
  EXPECT_EQ(pool.peak_bytes(), 16384);
  EXPECT_EQ(pool.limit_bytes(), 1 << 20);
}

TEST(HostStore, ThrowsWhereThePoolHasLess) {
  HostPool pool(10000);
  const auto first = make_host_store({4096}, pool);
  EXPECT_THAT(
      message_of<OffloadError>([&] { (void)make_host_store({8192}, pool); }),
      HasSubstr("[HostPool] 8192 bytes are wanted, and 4096 of 10000 are held "
                "already: raise the limit"));
  EXPECT_EQ(pool.held_bytes(), 4096);
}

TEST(HostStore, ThrowsAndGivesBackWhereMemoryIsShort) {
  constexpr std::int64_t kMuch = std::int64_t{1} << 46;
  HostPool pool(kMuch);
  EXPECT_THAT(
      message_of<OffloadError>([&] { (void)make_host_store({kMuch}, pool); }),
      HasSubstr("bytes are not there for offloaded blocks: offload less"));
  EXPECT_EQ(pool.held_bytes(), 0);
}

TEST(HostStore, RefusesWhatDoesNotFit) {
  HostPool pool(1 << 20);
  EXPECT_THAT(message_of<OffloadError>([&] {
                (void)make_host_store({1, -1}, pool);
              }),
              HasSubstr("[make_host_store] block 1 is of -1 bytes"));
  const auto store = make_host_store({4096}, pool);
  const AlignedBytes memory(8192);
  EXPECT_THAT(
      message_of<std::logic_error>([&] { store->start_read(0, memory.get()); }),
      HasSubstr("block 0 is copied to or from 4096 bytes"));
  EXPECT_THAT(message_of<std::logic_error>([&] {
                store->start_write(0, memory.get().subspan(8, 4096));
              }),
              HasSubstr("aligned to a multiple of 4096"));
  EXPECT_THAT(message_of<std::logic_error>([&] { store->wait(1); }),
              HasSubstr("there is no block 1: the store has 1"));
}

}  // namespace
}  // namespace accordion::testing
