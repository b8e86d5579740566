// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace accordion::testing {
namespace {

using detail::Mapping;

constexpr std::int64_t kPage = 4096;
// Two huge pages of the usual size, and a rest.
constexpr std::int64_t kLarge = 4 * 1024 * 1024 + 5 * kPage;

bool all_zero(const Mapping& mapping) {
  return std::all_of(mapping.data(), mapping.data() + mapping.bytes(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

bool starts_a_huge_page(const Mapping& mapping) {
  return reinterpret_cast<std::uintptr_t>(mapping.data()) %
             static_cast<std::uintptr_t>(detail::huge_page_bytes()) ==
         0;
}

// Or a write to a page that cannot be had would end the process.
TEST(SharedMemory, EveryPageIsReserved) {
  for (const std::int64_t bytes : {kPage, 3 * kPage, kLarge}) {
    const auto file = detail::create_memory_file(bytes, "test");
    struct stat status {};
    ASSERT_EQ(fstat(file.get(), &status), 0);
    EXPECT_EQ(status.st_size, bytes);
    EXPECT_GE(status.st_blocks * 512, bytes);
  }
}

TEST(SharedMemory, IsZeroAndTheSameInEveryMapping) {
  for (const std::int64_t bytes : {kPage, kLarge}) {
    const auto file = detail::create_memory_file(bytes, "test");
    const Mapping one = Mapping::shared(file.get(), bytes, "test");
    const Mapping other = Mapping::shared(file.get(), bytes, "test");
    EXPECT_TRUE(all_zero(one));
    one.data()[0] = std::byte{1};
    one.data()[bytes - 1] = std::byte{2};
    EXPECT_EQ(other.data()[0], std::byte{1});
    EXPECT_EQ(other.data()[bytes - 1], std::byte{2});
  }
}

TEST(SharedMemory, LargeMappingsStartAtAHugePage) {
  if (detail::huge_page_bytes() > kLarge) {
    // Nothing to align to: then the mapping is one like any other.
    EXPECT_TRUE(all_zero(Mapping::anonymous(kLarge, "test")));
    return;
  }
  const auto file = detail::create_memory_file(kLarge, "test");
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Mapping shared = Mapping::shared(file.get(), kLarge, "test");
    const Mapping anonymous = Mapping::anonymous(kLarge, "test");
    EXPECT_TRUE(starts_a_huge_page(shared));
    EXPECT_TRUE(starts_a_huge_page(anonymous));
    EXPECT_TRUE(all_zero(anonymous));
    anonymous.data()[kLarge - 1] = std::byte{1};
  }
}

TEST(SharedMemory, MoreThanTheAddressSpaceHoldsIsAnError) {
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 62;
  EXPECT_THROW(static_cast<void>(Mapping::anonymous(kTooMuch, "layers.3")),
               std::exception);
}

}  // namespace
}  // namespace accordion::testing
