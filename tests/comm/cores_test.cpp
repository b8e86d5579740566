// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/cores.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <thread>
#include <vector>

namespace accordion {
namespace {

CoreSet cores(std::initializer_list<int> numbers) {
  CoreSet set;
  for (const int core : numbers) {
    set.add(core);
  }
  return set;
}

TEST(CoreSet, CountsAndUnites) {
  CoreSet set = cores({0, 63, 64, 1023});
  EXPECT_EQ(set.count(), 4);
  EXPECT_TRUE(set.contains(64));
  EXPECT_FALSE(set.contains(65));
  set |= cores({63, 65});
  EXPECT_EQ(set, cores({0, 63, 64, 65, 1023}));
  EXPECT_EQ(CoreSet(set.words()), set);
}

TEST(CoreSet, PartsAreDisjointInOrderAndCoverAll) {
  const CoreSet set = cores({1, 2, 5, 8, 70, 71, 72});
  EXPECT_EQ(set.part(0, 3), cores({1, 2}));
  EXPECT_EQ(set.part(1, 3), cores({5, 8}));
  EXPECT_EQ(set.part(2, 3), cores({70, 71, 72}));
  EXPECT_EQ(set.part(0, 1), set);
  EXPECT_EQ(cores({4}).part(0, 2).count() + cores({4}).part(1, 2).count(), 1);
}

TEST(CoreSet, BindsTheThreadAndThoseItStarts) {
  const CoreSet before = CoreSet::of_this_thread();
  ASSERT_GT(before.count(), 0);
  const CoreSet last = before.part(before.count() - 1, before.count());
  CoreSet seen;
  std::thread([&] {
    last.bind_this_thread();
    std::thread([&] { seen = CoreSet::of_this_thread(); }).join();
  }).join();
  EXPECT_EQ(seen, last);
  EXPECT_EQ(CoreSet::of_this_thread(), before);
  CoreSet().bind_this_thread();
  EXPECT_EQ(CoreSet::of_this_thread(), before) << "no core at all";
}

TEST(CoresOfRank, ArePartOfThoseSharedAndAllOfItsOwn) {
  const CoreSet all = cores({0, 1, 2, 3, 4, 5, 6, 7});
  // Nobody bound the ranks; a launcher did; it bound pairs of them.
  EXPECT_EQ(cores_of_rank(std::vector{all, all}, 1), 4);
  EXPECT_EQ(cores_of_rank(std::vector{all.part(0, 2), all.part(1, 2)}, 1), 4);
  EXPECT_EQ(cores_of_rank(std::vector{cores({0, 1}), cores({0, 1}),
                                      cores({2, 3, 4}), cores({2, 3, 4})},
                          2),
            1);
  EXPECT_EQ(cores_of_rank(std::vector{cores({0}), cores({0})}, 0), 1);
}

}  // namespace
}  // namespace accordion
