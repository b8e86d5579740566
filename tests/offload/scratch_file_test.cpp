// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/scratch_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "tests/offload/mounted_folder.h"
#include "tests/offload/offload_support.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {
namespace {

using detail::ScratchFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct stat status_of(int file) {
  struct stat status {};
  EXPECT_EQ(::fstat(file, &status), 0);
  return status;
}

TEST(ScratchFile, HasNoNameAndAllItsSpace) {
  const TemporaryFolder folder;
  const ScratchFile file(folder.path(), 1 << 20, false);
  const struct stat status = status_of(file.get());
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(status.st_size, 1 << 20);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  if (file.reserved()) {
    EXPECT_GE(status.st_blocks * 512, 1 << 20);
  }
}

TEST(ScratchFile, IsOfItsOwnerAloneAndNotInherited) {
  const TemporaryFolder folder;
  const ScratchFile file(folder.path(), 4096, false);
  EXPECT_EQ(status_of(file.get()).st_mode & 0777, 0600U);
  EXPECT_EQ(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(ScratchFile, LosesItsNameAtOnceWhereItNeedsOne) {
  const TemporaryFolder folder;
  const detail::FileDescriptor file = detail::open_removed(folder.path());
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(status_of(file.get()).st_nlink, 0U);
  EXPECT_EQ(status_of(file.get()).st_mode & 0777, 0600U);
  EXPECT_EQ(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ScratchFile, SaysWhichFileSystemCannotReserveOrGoPastThePageCache) {
  const MountedFolder ramfs("ramfs");
  if (!ramfs.why_not().empty()) {
    GTEST_SKIP() << ramfs.why_not();
  }
  const ScratchFile file(ramfs.path(), 8192, true);
  EXPECT_FALSE(file.direct());
  EXPECT_FALSE(file.reserved());
  EXPECT_EQ(status_of(file.get()).st_size, 8192);
}

TEST(ScratchFile, DiskThatIsTooSmallIsFoundOutAtOnce) {
  const MountedFolder tmpfs("tmpfs", "size=1m");
  if (!tmpfs.why_not().empty()) {
    GTEST_SKIP() << tmpfs.why_not();
  }
  const std::string message = message_of<OffloadError>(
      [&] { const ScratchFile file(tmpfs.path(), 2 << 20, true); });
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("[offload] a scratch file of 2097152 bytes in '" +
                      tmpfs.path().string() + "' cannot be reserved: No space"),
            HasSubstr("2097152 bytes are needed and 1048576 are free: make "
                      "room, choose a folder on another disk")));
  const ScratchFile fits(tmpfs.path(), 1 << 20, true);
}

TEST(ScratchFile, MoreThanAnyDiskHasIsAnErrorThatSaysHowMuchIsFree) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<OffloadError>([&] {
                const ScratchFile file(folder.path(), std::int64_t{1} << 60,
                                       true);
              }),
              AllOf(HasSubstr("1152921504606846976 bytes are needed and "),
                    HasSubstr(" are free")));
}

TEST(ScratchFile, LimitOnFilesOfThisProcessIsAnErrorAndNotASignal) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(4096);
  EXPECT_THAT(message_of<OffloadError>(
                  [&] { const ScratchFile file(folder.path(), 8192, true); }),
              AllOf(HasSubstr("of 8192 bytes in '" + folder.path().string() +
                              "' cannot be reserved: File too large"),
                    HasSubstr("`ulimit -f`")));
  const ScratchFile fits(folder.path(), 4096, true);
}

TEST(ScratchFile, FolderThatIsNotThereIsNamed) {
  EXPECT_THAT(
      message_of<OffloadError>(
          [] { const ScratchFile file("/no/such/folder", 4096, true); }),
      AllOf(HasSubstr("in '/no/such/folder' cannot be made: No such file"),
            HasSubstr("Make the folder, or choose another one.")));
}

TEST(ScratchFile, FolderThatCannotBeWrittenToIsNamed) {
  EXPECT_THAT(
      message_of<OffloadError>(
          [] { const ScratchFile file("/proc", 4096, true); }),
      AllOf(HasSubstr("in '/proc' cannot be made"), HasSubstr("folder")));
}

TEST(ScratchFile, AdviceDependsOnTheError) {
  EXPECT_THAT(detail::advice_on(EFBIG, "/", 7),
              HasSubstr("may not have 7 bytes here; `ulimit -f`"));
  EXPECT_THAT(detail::advice_on(EIO, "/", 7), HasSubstr("see `dmesg`"));
  EXPECT_THAT(detail::advice_on(EACCES, "/", 7),
              HasSubstr("that this process may write to"));
}

const RankProgram kKilled("killed with a scratch file",
                          [](const auto& context) {
                            const auto store = make_nvme_store(
                                {.folder = context.arguments.at(0),
                                 .block_bytes = {1 << 20}});
                            const AlignedBytes block(1 << 20);
                            fill(block.get(), 0, 1);
                            store->start_write(0, block.get());
                            store->wait(0);
                            std::printf("written\n");
                            std::fflush(stdout);
                            (void)std::raise(SIGKILL);
                          });

TEST(ScratchFile, LeavesNothingWhenItsProcessIsKilled) {
  const TemporaryFolder folder;
  const RankResult result =
      run_ranks(kKilled, 1, {folder.path().string()}).at(0);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_THAT(result.output, HasSubstr("written"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace accordion::testing
