// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/durable_file.h"

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlock = kChecksumBlockBytes;

/// Byte i of a file is a formula in i that no block repeats.
std::string counted_bytes(std::int64_t count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 31 + (i >> 8) * 7 + (i >> 20) * 3);
  }
  return bytes;
}

std::span<const std::byte> as_span(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::uint64_t> sums_of_blocks(std::string_view content) {
  std::vector<std::uint64_t> sums;
  for (; !content.empty(); content = content.substr(
                               std::min(content.size(), std::size_t{kBlock}))) {
    sums.push_back(checksum_of(as_span(content.substr(0, kBlock))));
  }
  return sums;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// No file of this process grows beyond `bytes` meanwhile; that a write fails
/// is told by its result, not by a signal.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// The values of the reference implementation: another program can check them.
TEST(BlockChecksum, IsXxh3Of64BitsWithSeed0) {
  EXPECT_EQ(checksum_text(checksum_of(as_span(""))), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum_of(as_span("a"))), "e6c632b61e964e1f");
  EXPECT_EQ(checksum_text(checksum_of(as_span("abc"))), "78af5f94892f3950");
}

TEST(BlockChecksum, TextHas16DigitsWhateverTheValue) {
  EXPECT_EQ(checksum_text(0), "0000000000000000");
  EXPECT_EQ(checksum_text(0xabc), "0000000000000abc");
  EXPECT_EQ(checksum_text(~std::uint64_t{0}), "ffffffffffffffff");
}

TEST(BlockChecksum, BlocksDoNotDependOnThePieces) {
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1}, kBlock - 1,
                                  kBlock, kBlock + 1, 3 * kBlock + 12345}) {
    const std::string content = counted_bytes(size);
    const auto expected = sums_of_blocks(content);
    for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{4097},
                                     kBlock - 1, kBlock, kBlock + 1, size}) {
      BlockChecksums sums;
      for (std::string_view rest = content; !rest.empty();) {
        const auto now = std::min(rest.size(), static_cast<std::size_t>(piece));
        sums.add(as_span(rest.substr(0, now)));
        rest.remove_prefix(now);
      }
      EXPECT_EQ(sums.bytes_left(), kBlock - size % kBlock);
      EXPECT_EQ(sums.finish(), expected) << size << " by " << piece;
    }
  }
}

TEST(DurableFile, HoldsWhatWasWrittenAndReportsIt) {
  const TemporaryFolder folder;
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{1}, kBlock, 17 * kBlock + 3}) {
    const fs::path path = folder.path() / std::to_string(size);
    const std::string content = counted_bytes(size);
    DurableFile file(path, size);
    const auto first = content.size() / 3;
    file.write(std::string_view(content).substr(0, first));
    file.write(std::string_view(content).substr(first));
    const WrittenFile written = file.finish();
    EXPECT_EQ(written.bytes, size);
    EXPECT_EQ(written.checksums, sums_of_blocks(content));
    EXPECT_TRUE(content_of(path) == content) << size;
  }
}

// Space that was reserved is no content.
TEST(DurableFile, IsAsLongAsWhatWasWritten) {
  const TemporaryFolder folder;
  DurableFile file(folder.path() / "a", 1 << 20);
  file.write("abc");
  EXPECT_EQ(file.finish().bytes, 3);
  EXPECT_EQ(content_of(folder.path() / "a"), "abc");
}

TEST(DurableFile, NeverOverwrites) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a", "old");
  expect_checkpoint_error([&] { DurableFile file(path, 3); },
                          {path.string(), "File exists", "never overwritten"});
  fs::create_symlink(path, folder.path() / "link");
  expect_checkpoint_error([&] { DurableFile file(folder.path() / "link", 3); },
                          {"File exists"});
  EXPECT_EQ(content_of(path), "old");
}

// Below a file, and in /proc, not even root may make one.
TEST(DurableFile, NamesAFolderThatCannotBeWrittenTo) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  for (const fs::path& path :
       {folder.path() / "none" / "a", file / "a", fs::path("/proc/a")}) {
    expect_checkpoint_error(
        [&] { DurableFile made(path, 0); },
        {path.string(), "cannot be made", "exists and may be written to"});
  }
}

TEST(DurableFile, FindsADiskTooSmallBeforeTheFirstByte) {
  const TemporaryFolder folder;
  struct statvfs status {};
  ASSERT_EQ(::statvfs(folder.path().c_str(), &status), 0);
  const auto more = static_cast<std::int64_t>(status.f_bfree * status.f_frsize +
                                              (std::uint64_t{1} << 40));
  const fs::path path = folder.path() / "a";
  expect_checkpoint_error(
      [&] { DurableFile file(path, more); },
      {path.string(), "No space left", "It needs " + std::to_string(more),
       "are free: make room, or lower checkpoint.keep"});
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(DurableFile, AWriteThatFailsSaysHowManyBytesAreNeeded) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const std::string content = counted_bytes(3 * kBlock);
  const FileSizeLimit limit(kBlock + kBlock / 2);
  expect_checkpoint_error(
      [&] {
        DurableFile file(path, 3 * kBlock);
        file.write(content);
        (void)file.finish();
      },
      {path.string(), "cannot be written", "It needs 3145728 bytes",
       "ulimit -f"});
}

// What was written of it would keep a full disk full.
TEST(DurableFile, IsGoneUnlessItWasFinished) {
  const TemporaryFolder folder;
  {
    DurableFile file(folder.path() / "a", 3);
    file.write("abc");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(ReplaceFile, PutsTheNewContentInPlaceOfTheOld) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "latest";
  for (const std::string content : {"one", "", "three"}) {
    replace_file(path, content);
    EXPECT_EQ(content_of(path), content);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"latest"});
  }
}

// A reader that opened the old file keeps it: the new one is another file.
TEST(ReplaceFile, LeavesTheOldFileAsItIs) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("latest", "old");
  std::ifstream reader(path, std::ios::binary);
  replace_file(path, "new content");
  const std::string read{std::istreambuf_iterator<char>(reader), {}};
  EXPECT_EQ(read, "old");
}

TEST(ReplaceFile, KeepsTheOldContentWhenItFails) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("latest", "old");
  {
    const FileSizeLimit limit(kBlock);
    expect_checkpoint_error(
        [&] { replace_file(path, counted_bytes(2 * kBlock)); },
        {"latest", "cannot be written"});
  }
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"latest"});
}

TEST(ReplaceFile, ManagesWithWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("latest", "old");
  (void)folder.write("latest.unfinished", "half of it");
  replace_file(path, "new");
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"latest"});
}

TEST(RenameDurably, MovesFilesBetweenFolders) {
  const TemporaryFolder folder;
  (void)folder.write("a", "content");
  fs::create_directory(folder.path() / "b");
  rename_durably(folder.path() / "a", folder.path() / "b" / "c");
  EXPECT_EQ(content_of(folder.path() / "b" / "c"), "content");
  expect_checkpoint_error(
      [&] { rename_durably(folder.path() / "a", folder.path() / "d"); },
      {"'" + (folder.path() / "a").string() + "' cannot be renamed"});
}

TEST(SyncFolder, NamesOneThatIsNotThere) {
  const TemporaryFolder folder;
  sync_folder(folder.path());
  sync_folder("");  // the working folder
  expect_checkpoint_error([&] { sync_folder(folder.path() / "none"); },
                          {"none' cannot be opened", "No such file"});
}

}  // namespace
}  // namespace accordion::testing
