// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <vector>

#include "accordion/offload/host_store.h"
#include "accordion/offload/staged_blocks.h"
#include "tests/offload/offload_support.h"
#include "tests/offload/played_store.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {
namespace {

const std::vector<std::int64_t> kSizes = {1,    0,     4095,           4096,
                                          4097, 20000, (1 << 20) + 17, 30001};

/// Makes random calls, and knows which version of each block has to be there.
class RandomUse {
 public:
  RandomUse(StagedBlocks& blocks, int buffers, unsigned seed)
      : blocks_(blocks),
        buffers_(buffers),
        random_(seed),
        versions_(kSizes.size()),
        held_(kSizes.size()) {}

  void step() {
    const int block = pick(static_cast<int>(kSizes.size()));
    switch (pick(8)) {
      case 0:
        blocks_.flush();
        break;
      case 1:
      case 2:
        (void)blocks_.prefetch(block);
        break;
      default:
        is_held_[at(block)] ? release(block) : acquire(block);
    }
  }

  void release_all() {
    for (int block = 0; block < std::ssize(kSizes); ++block) {
      release(block);
    }
  }

  int pick(int below) {
    return std::uniform_int_distribution<int>(0, below - 1)(random_);
  }

 private:
  static std::size_t at(int block) { return static_cast<std::size_t>(block); }

  void acquire(int block) {
    if (num_held_ == buffers_) {
      EXPECT_THROW((void)blocks_.acquire(block), std::logic_error);
      return;
    }
    held_[at(block)] = blocks_.acquire(block);
    is_held_[at(block)] = true;
    ++num_held_;
    ASSERT_EQ(std::ssize(held_[at(block)]), kSizes[at(block)]);
    expect_version(held_[at(block)], block, versions_[at(block)]);
  }

  void release(int block) {
    if (!is_held_[at(block)]) {
      return;
    }
    const bool changes = pick(2) == 0;
    if (changes) {
      fill(held_[at(block)], block, ++versions_[at(block)]);
    }
    blocks_.release(block, changes ? Use::Changed : Use::Unchanged);
    is_held_[at(block)] = false;
    held_[at(block)] = {};
    --num_held_;
  }

  StagedBlocks& blocks_;
  const int buffers_;
  std::mt19937 random_;
  std::vector<int> versions_;  // of each block; 0 was never written
  std::vector<std::span<std::byte>> held_;
  std::vector<bool> is_held_ = std::vector<bool>(kSizes.size());
  int num_held_ = 0;
};

constexpr int kSteps = 250;

TEST(StagedBlocksProperty, EveryBlockIsTheOneReleasedLast) {
  const TemporaryFolder folder;
  HostPool pool(64 << 20);
  for (int buffers = 1; buffers <= 5; ++buffers) {
    const auto try_store = [&](const char* name,
                               std::unique_ptr<OffloadStore> store) {
      SCOPED_TRACE(std::string(name) + ", buffers and seed " +
                   std::to_string(buffers));
      StagedBlocks blocks(std::move(store), kSizes, buffers);
      RandomUse use(blocks, buffers, static_cast<unsigned>(buffers));
      for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
        use.step();
      }
      use.release_all();
    };
    try_store("host", make_host_store(kSizes, pool));
    for (const NvmeKind& kind : kNvmeKinds) {
      if (why_not(kind, folder.path()).empty()) {
        try_store(kind.name, make_nvme_store({.folder = folder.path(),
                                              .block_bytes = kSizes,
                                              .io = kind.io,
                                              .direct = kind.direct}));
      }
    }
  }
}

// Transfers that take any time, and end in any order.
TEST(StagedBlocksProperty, EveryBlockIsTheOneReleasedLastHoweverSlowTheStore) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int buffers = 1 + static_cast<int>(seed % 5);
    auto owned = std::make_unique<PlayedStore>(kSizes);
    PlayedStore& store = *owned;
    StagedBlocks blocks(std::move(owned), kSizes, buffers);
    RandomUse use(blocks, buffers, seed);
    for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
      use.step();
      if (use.pick(3) == 0) {
        store.finish(use.pick(static_cast<int>(kSizes.size())));
      }
    }
    use.release_all();
  }
}

}  // namespace
}  // namespace accordion::testing
