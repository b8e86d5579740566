// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/nvme_store.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

#include "tests/offload/mounted_folder.h"
#include "tests/offload/offload_support.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr std::int64_t kMib = 1 << 20;

class NvmeStore : public ::testing::TestWithParam<NvmeKind> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(GetParam(), folder_.path());
        !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

  [[nodiscard]] std::unique_ptr<OffloadStore> make(
      std::vector<std::int64_t> block_bytes) const {
    return make_nvme_store({.folder = folder_.path(),
                            .block_bytes = std::move(block_bytes),
                            .io = GetParam().io,
                            .direct = GetParam().direct});
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(, NvmeStore, ::testing::ValuesIn(kNvmeKinds),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(NvmeStore, GivesBackBlocksOfAnySize) {
  const std::vector<std::int64_t> sizes = {
      1, 0, 4095, 4096, 4097, kMib - 1, 3 * kMib + 5, 0, 40 * kMib, 123457};
  const auto store = make(sizes);
  std::vector<AlignedBytes> blocks(sizes.begin(), sizes.end());
  for (int version = 1; version <= 2; ++version) {
    for (int block = 0; block < std::ssize(blocks); ++block) {
      fill(blocks[block].get(), block, version);
      store->start_write(block, blocks[block].get());
    }
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store->wait(block);
      EXPECT_FALSE(store->in_flight(block));
      fill(blocks[block].get(), block, 7);
    }
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store->start_read(block, blocks[block].get());
    }
    for (int block = 0; block < std::ssize(blocks); ++block) {
      store->wait(block);
      expect_version(blocks[block].get(), block, version);
    }
  }
  EXPECT_EQ(store->traffic().bytes_read, 2 * store->held_bytes());
  EXPECT_EQ(store->traffic().bytes_written, 2 * store->held_bytes());
  EXPECT_GT(store->traffic().seconds_in_flight, 0);
}

TEST_P(NvmeStore, ReadsZerosWhereNothingWasWritten) {
  const auto store = make({4096, 5000});
  const AlignedBytes block(5000);
  fill(block.get(), 1, 1);
  store->start_read(1, block.get());
  store->wait(1);
  expect_version(block.get(), 1, 0);
}

TEST_P(NvmeStore, TransfersOfABlockFollowEachOther) {
  const auto store = make({8 * kMib});
  const AlignedBytes first(8 * kMib);
  const AlignedBytes second(8 * kMib);
  const AlignedBytes back(8 * kMib);
  fill(first.get(), 0, 1);
  fill(second.get(), 0, 2);
  for (int i = 0; i < 5; ++i) {
    store->start_write(0, first.get());
    store->start_write(0, second.get());
    store->start_read(0, back.get());
    store->wait(0);
    expect_version(back.get(), 0, 2);
  }
}

TEST_P(NvmeStore, EndsTransfersUnderWayBeforeItIsGone) {
  for (int i = 0; i < 3; ++i) {
    const AlignedBytes from(40 * kMib);
    const AlignedBytes to(40 * kMib);
    const auto store = make({40 * kMib, 40 * kMib});
    store->start_write(0, from.get());
    store->start_read(1, to.get());
  }  // a sanitizer sees what still uses the memory
}

TEST_P(NvmeStore, WaitThatTakesTooLongIsAnErrorThatNamesTheBlock) {
  constexpr std::int64_t kBytes = 64 * kMib;
  const AlignedBytes block(kBytes);
  const auto store = make_nvme_store({.folder = folder_.path(),
                                      .block_bytes = {kBytes},
                                      .io = GetParam().io,
                                      .direct = GetParam().direct,
                                      .timeout = std::chrono::milliseconds(1)});
  // A machine that was busy elsewhere may find the bytes written.
  std::string message;
  for (int i = 0; i < 50 && message.empty(); ++i) {
    try {
      store->start_write(0, block.get());
      store->wait(0);
    } catch (const OffloadError& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("[offload] writing block 0 (67108864 bytes) to the "
                      "scratch file in '" +
                      folder_.path().string() + "' is not done after 1 ms"),
            HasSubstr("see `dmesg`, or choose a folder on another one.")));
}

TEST_P(NvmeStore, SaysHowItWorks) {
  const auto store = make({5000});
  const std::string name = GetParam().name;
  EXPECT_THAT(store->describe(),
              AllOf(StartsWith(name == "uring" ? "io_uring, " : "4 threads, "),
                    HasSubstr(name == "page_cache" ? "page cache" : ", "),
                    HasSubstr("8192 bytes reserved in '" +
                              folder_.path().string() + "'")));
}

/// A descriptor of the only file of this process in a folder, though it has no
/// name there.
int descriptor_in(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone)
            .string()
            .starts_with(folder.string())) {
      return std::stoi(entry.path().filename().string());
    }
  }
  throw std::runtime_error("no file in " + folder.string());
}

TEST_P(NvmeStore, FileThatBecameShorterIsAnErrorThatNamesTheBlock) {
  const auto store = make({4096, 2 * kMib});
  ASSERT_EQ(::ftruncate(descriptor_in(folder_.path()), 4096 + kMib), 0);
  const AlignedBytes block(2 * kMib);
  for (int i = 0; i < 2; ++i) {
    store->start_read(1, block.get());
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(
          message_of<OffloadError>([&] { store->wait(1); }),
          AllOf(HasSubstr("[offload] reading block 1 (2097152 bytes) from the "
                          "scratch file in '" +
                          folder_.path().string() + "' failed at byte 1052672"),
                HasSubstr("Input/output error. The disk or its file system is "
                          "failing")));
    }
  }
  const AlignedBytes other(4096);
  store->start_read(0, other.get());
  store->wait(0);
}

TEST_P(NvmeStore, WriteThatIsRefusedIsAnErrorThatNamesTheBlock) {
  const auto store = make({4096, 2 * kMib});
  const AlignedBytes block(2 * kMib);
  fill(block.get(), 1, 1);
  const FileSizeLimit limit(4096);
  store->start_write(1, block.get());
  EXPECT_THAT(
      message_of<OffloadError>([&] { store->wait(1); }),
      AllOf(HasSubstr("[offload] writing block 1 (2097152 bytes) to the "
                      "scratch file in '"),
            HasSubstr("File too large"), HasSubstr("`ulimit -f`")));
}

TEST_P(NvmeStore, NoPageOfItStaysInTheCache) {
  constexpr std::int64_t kBytes = 8 * kMib;
  const auto store = make({kBytes});
  const AlignedBytes block(kBytes);
  fill(block.get(), 0, 1);
  store->start_write(0, block.get());
  store->wait(0);
  store->start_read(0, block.get());
  store->wait(0);
  // Cached pages can be read without waiting; the others cannot.
  const int file = descriptor_in(folder_.path());
  const int flags = ::fcntl(file, F_GETFL);
  ASSERT_EQ(::fcntl(file, F_SETFL, flags & ~O_DIRECT), 0);
  const AlignedBytes page(4096);
  const iovec into = {page.get().data(), page.get().size()};
  int num_cached = 0;
  for (std::int64_t at = 0; at < kBytes; at += kMib / 4) {
    num_cached += ::preadv2(file, &into, 1, at, RWF_NOWAIT) > 0 ? 1 : 0;
  }
  EXPECT_EQ(num_cached, 0);
}

TEST(NvmeOptions, AutoTakesThreadsWhereTheFileSystemCannotGoPastThePageCache) {
  const MountedFolder ramfs("ramfs");
  if (!ramfs.why_not().empty()) {
    GTEST_SKIP() << ramfs.why_not();
  }
  const auto store =
      make_nvme_store({.folder = ramfs.path(), .block_bytes = {9000}});
  EXPECT_THAT(store->describe(),
              StartsWith("4 threads (no io_uring: the page cache is used), "
                         "page cache, 12288 bytes not reserved in '"));
  const AlignedBytes block(9000);
  fill(block.get(), 0, 1);
  store->start_write(0, block.get());
  store->wait(0);
  fill(block.get(), 0, 2);
  store->start_read(0, block.get());
  store->wait(0);
  expect_version(block.get(), 0, 1);
}

TEST(NvmeOptions, UringThroughThePageCacheIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      message_of<OffloadError>([&] {
        (void)make_nvme_store({.folder = folder.path(),
                               .block_bytes = {1},
                               .io = NvmeIo::Uring,
                               .direct = false});
      }),
      AllOf(HasSubstr("[make_nvme_store] io_uring cannot be used for "
                      "the folder '" +
                      folder.path().string() + "': the page cache is used."),
            HasSubstr("or use NvmeIo::Threads")));
}

TEST(NvmeOptions, AreChecked) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<OffloadError>([&] {
                (void)make_nvme_store(
                    {.folder = folder.path(), .block_bytes = {3, -4}});
              }),
              HasSubstr("[make_nvme_store] block 1 is of -4 bytes"));
  EXPECT_THAT(message_of<OffloadError>([&] {
                (void)make_nvme_store({.folder = folder.path(),
                                       .block_bytes = {1},
                                       .timeout = std::chrono::seconds(0)});
              }),
              HasSubstr("[make_nvme_store] timeout is 0 ms"));
}

/// From here on the kernel answers io_uring_setup with `error`, as the filters
/// of containers do.
void refuse_io_uring(unsigned error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(program), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

const RankProgram kRefused("io_uring is refused", [](const RankContext& rank) {
  refuse_io_uring(EPERM);
  const NvmeOptions options = {.folder = rank.arguments.at(0),
                               .block_bytes = {5000}};
  const auto store = make_nvme_store(options);
  EXPECT_THAT(store->describe(),
              StartsWith("4 threads (no io_uring: it is refused: Operation not "
                         "permitted), "));
  const AlignedBytes block(5000);
  fill(block.get(), 0, 1);
  store->start_write(0, block.get());
  store->wait(0);
  store->start_read(0, block.get());
  store->wait(0);
  expect_version(block.get(), 0, 1);
  EXPECT_THAT(message_of<OffloadError>([&] {
                (void)make_nvme_store({.folder = options.folder,
                                       .block_bytes = {1},
                                       .io = NvmeIo::Uring});
              }),
              HasSubstr("it is refused: Operation not permitted. Leave the "
                        "choice to NvmeIo::Auto"));
});

TEST(NvmeOptions, AutoTakesThreadsWhereTheKernelRefusesIoUring) {
  const TemporaryFolder folder;
  expect_ranks_pass(kRefused, 1, {folder.path().string()});
}

}  // namespace
}  // namespace accordion::testing
