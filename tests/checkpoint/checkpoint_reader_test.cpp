// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_reader.h"

#include <sys/stat.h>

#include "accordion/checkpoint/block_checksum.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace accordion::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlock = kChecksumBlockBytes;

/// Of three ranks, each of whose files has two blocks; a rank's part ends
/// within a row. The small ones share a block with the start of the large one.
const CountedTensor kLarge = {"model/large", {1000, 1000}, 1'000'000};
const std::vector<CountedTensor> kTensors = {
    {"model/scalar", {}, 7},
    {"model/small", {7}, 100},
    {"optimizer/exp_avg/small", {7}, 200},
    {"model/none", {0, 3}, 0},
    kLarge};

class CheckpointReaderTest : public ::testing::Test {
 protected:
  void SetUp() override { write_checkpoint(path_, kTensors, 3); }

  [[nodiscard]] fs::path shard(int rank) const {
    return path_ / shard_file_name(rank, 3);
  }
  [[nodiscard]] static std::vector<std::int32_t> read(CheckpointReader& reader,
                                                      std::string_view name,
                                                      std::int64_t begin,
                                                      std::int64_t end) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(end - begin));
    reader.read(name, begin, std::as_writable_bytes(std::span(values)));
    return values;
  }
  /// Reading all of the large tensor fails with these words.
  void expect_fault(const std::vector<std::string>& phrases) const {
    CheckpointReader reader(path_);
    expect_checkpoint_error(
        [&] { (void)read(reader, kLarge.name, 0, kLarge.numel()); }, phrases);
  }
  void expect_index_fault(const std::vector<std::string>& phrases) const {
    expect_checkpoint_error([&] { CheckpointReader reader(path_); }, phrases);
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "step-00000001";
};

TEST_F(CheckpointReaderTest, ElementsAreThoseOfTheirPositions) {
  CheckpointReader reader(path_);
  for (const CountedTensor& tensor : kTensors) {
    ASSERT_NE(reader.find(tensor.name), nullptr);
    EXPECT_EQ(reader.find(tensor.name)->shape, tensor.shape);
    EXPECT_TRUE(read(reader, tensor.name, 0, tensor.numel()) ==
                tensor.elements(0, tensor.numel()))
        << tensor.name;
  }
  EXPECT_EQ(reader.find("model/gone"), nullptr);
  EXPECT_EQ(reader.find("small"), nullptr);
}

TEST_F(CheckpointReaderTest, AnyRangeCanBeRead) {
  CheckpointReader reader(path_);
  const std::int64_t third = kLarge.numel() / 3;  // where rank 0's part ends
  const std::int64_t block = kBlock / 4;
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, int64_t>>{
           {0, 1},
           {5, 5},
           {third - 1, third + 1},
           {third, third + 1},
           {third - 1, third},
           {block - 100, block + 100},
           {1, kLarge.numel() - 1},
           {third - 5, 2 * third + 5},
           {kLarge.numel() - 1, kLarge.numel()},
           {kLarge.numel(), kLarge.numel()}}) {
    EXPECT_TRUE(read(reader, kLarge.name, begin, end) ==
                kLarge.elements(begin, end))
        << begin << " to " << end;
  }
}

TEST_F(CheckpointReaderTest, ReadsOnlyBlocksThatHoldTheRange) {
  CheckpointReader reader(path_);
  EXPECT_EQ(reader.bytes_read(), 0);
  (void)read(reader, "model/small", 0, 2);
  EXPECT_EQ(reader.bytes_read(), kBlock);
  (void)read(reader, "optimizer/exp_avg/small", 0, 2);  // the same block
  EXPECT_EQ(reader.bytes_read(), kBlock);
  // The second block of the first file is shorter.
  const std::int64_t rest = reader.index().files[0].bytes - kBlock;
  (void)read(reader, kLarge.name, kLarge.numel() / 3 - 1, kLarge.numel() / 3);
  EXPECT_EQ(reader.bytes_read(), kBlock + rest);
}

TEST_F(CheckpointReaderTest, ReadsEachBlockOnceForTheWhole) {
  CheckpointReader reader(path_);
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : reader.index().files) {
    bytes += file.bytes;
  }
  (void)read(reader, kLarge.name, 0, kLarge.numel());
  EXPECT_EQ(reader.bytes_read(), bytes);
}

// 16 MiB of one file: the blocks are read where they are wanted.
TEST_F(CheckpointReaderTest, ReadsTensorsOfManyBlocks) {
  const CountedTensor tensor = {"model/huge", {4 << 20}, 5};
  const fs::path path = folder_.path() / "huge";
  write_checkpoint(path, {{"model/a", {3}, 0}, tensor}, 1);
  CheckpointReader reader(path);
  EXPECT_TRUE(read(reader, tensor.name, 0, tensor.numel()) ==
              tensor.elements(0, tensor.numel()));
  EXPECT_EQ(reader.bytes_read(), reader.index().files[0].bytes);
  const std::int64_t before = reader.bytes_read();
  (void)read(reader, tensor.name, 1 << 20, (1 << 20) + (1 << 18));
  EXPECT_EQ(reader.bytes_read() - before, 2 * kBlock);
}

TEST_F(CheckpointReaderTest, AChangedByteThatIsNotReadDoesNoHarm) {
  flip_bit(shard(0), kBlock + 10);
  flip_bit(shard(2), 0);
  CheckpointReader reader(path_);
  const std::int64_t third = kLarge.numel() / 3;
  EXPECT_EQ(read(reader, "model/small", 0, 2), kTensors[1].elements(0, 2));
  EXPECT_EQ(read(reader, kLarge.name, third, third + 9),
            kLarge.elements(third, third + 9));
}

TEST_F(CheckpointReaderTest, AChangedByteThatIsReadIsAnErrorWithItsOffset) {
  flip_bit(shard(1), kBlock + 10);
  expect_fault({shard(1).string(), "tensor 'model/large'", "bytes 1048576 to ",
                "do not have the checksum"});
  CheckpointReader reader(path_);
  expect_checkpoint_error([&] { reader.verify(); },
                          {shard(1).string(), "bytes 1048576 to "});
}

// The bytes beside the wanted ones belong to the block, too.
TEST_F(CheckpointReaderTest, EveryByteOfABlockIsVerified) {
  flip_bit(shard(0), 3);  // of the header
  CheckpointReader reader(path_);
  expect_checkpoint_error(
      [&] { (void)read(reader, "model/small", 0, 1); },
      {"tensor 'model/small'", "bytes 0 to 1048576", "checksum"});
  // A block that failed is not taken for read.
  expect_checkpoint_error([&] { (void)read(reader, "model/small", 0, 1); },
                          {"bytes 0 to 1048576"});
}

// Its bytes took the place of those that were kept.
TEST_F(CheckpointReaderTest, ABlockThatFailsIsNotTakenForTheOneBefore) {
  flip_bit(shard(1), 5);
  CheckpointReader reader(path_);
  const std::int64_t third = kLarge.numel() / 3;
  EXPECT_EQ(read(reader, "model/small", 0, 2), kTensors[1].elements(0, 2));
  expect_checkpoint_error(
      [&] { (void)read(reader, kLarge.name, third, third + 1); },
      {shard(1).string(), "bytes 0 to 1048576"});
  EXPECT_EQ(read(reader, "model/small", 0, 2), kTensors[1].elements(0, 2));
}

TEST_F(CheckpointReaderTest, ElementsMayHaveAnySize) {
  std::vector<std::byte> bytes(160);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i);
  }
  const fs::path path = folder_.path() / "sizes";
  begin_checkpoint(path);
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<TensorRange> ranges;
    for (const auto& [dtype, size] :
         {std::pair{"U8", 1}, {"BF16", 2}, {"F64", 8}}) {
      ranges.push_back({dtype,
                        dtype,
                        {20},
                        rank * 10,
                        rank * 10 + 10,
                        std::span(bytes).subspan(rank * 10 * size, 10 * size)});
    }
    reports.push_back(
        write_shard(unfinished_folder(path), shard_file_name(rank, 2), ranges));
  }
  CheckpointIndex index;
  add_shards(index, reports);
  commit_checkpoint(path, index);
  CheckpointReader reader(path);
  for (const auto& [dtype, size] :
       {std::pair{"U8", 1}, {"BF16", 2}, {"F64", 8}}) {
    std::vector<std::byte> got(static_cast<std::size_t>(11 * size));
    reader.read(dtype, 4, got);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + 4 * size))
        << dtype;
  }
}

TEST_F(CheckpointReaderTest, VerifyReadsEverything) {
  CheckpointReader reader(path_);
  reader.verify();
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : reader.index().files) {
    bytes += file.bytes;
  }
  EXPECT_EQ(reader.bytes_read(), bytes);
}

TEST_F(CheckpointReaderTest, VerifyNamesNoTensorThatAnEarlierReadFailedOf) {
  flip_bit(shard(0), 3);
  CheckpointReader reader(path_);
  expect_checkpoint_error([&] { (void)read(reader, "model/small", 0, 1); },
                          {"tensor 'model/small'"});
  try {
    reader.verify();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(std::string(error.what()).find("'model/small'"),
              std::string::npos);
  }
}

TEST_F(CheckpointReaderTest, VerifyFindsThatAnEmptyFileIsMissing) {
  begin_checkpoint(folder_.path() / "b");
  CheckpointIndex index;
  index.files = {{"empty", 0, {}}};
  commit_checkpoint(folder_.path() / "b", index);
  CheckpointReader reader(folder_.path() / "b");
  expect_checkpoint_error([&] { reader.verify(); },
                          {"empty", "it cannot be opened"});
}

TEST_F(CheckpointReaderTest, AnAliasIsTheParameterThatItStandsFor) {
  const fs::path path = folder_.path() / "shared";
  begin_checkpoint(path);
  auto index = write_shards(unfinished_folder(path), kTensors, 2);
  index.aliases = {{"head", "small"}};
  commit_checkpoint(path, index);
  CheckpointReader reader(path);
  EXPECT_EQ(reader.find("model/head"), reader.find("model/small"));
  EXPECT_EQ(read(reader, "model/head", 2, 5), kTensors[1].elements(2, 5));
  EXPECT_EQ(reader.find("head"), nullptr);
  EXPECT_EQ(reader.find("optimizer/exp_avg/head"), nullptr);
}

TEST_F(CheckpointReaderTest, CanBeMovedWhileFilesAreOpen) {
  CheckpointReader first(path_);
  (void)read(first, "model/small", 0, 2);
  CheckpointReader second(std::move(first));
  EXPECT_EQ(second.bytes_read(), kBlock);
  EXPECT_EQ(second.folder(), path_);
  EXPECT_EQ(read(second, "model/small", 0, 7), kTensors[1].elements(0, 7));
}

TEST_F(CheckpointReaderTest, AFileOfAnotherSizeIsNamed) {
  const auto bytes = static_cast<std::int64_t>(fs::file_size(shard(1)));
  for (const std::int64_t wrong : {bytes - 1, bytes + 1, std::int64_t{0}}) {
    fs::resize_file(shard(1), static_cast<std::uintmax_t>(wrong));
    expect_fault({shard(1).string(), "tensor 'model/large'",
                  "it has " + std::to_string(wrong) +
                      " bytes and the index says " + std::to_string(bytes)});
  }
}

TEST_F(CheckpointReaderTest, AFileThatShrinksMeanwhileIsNamed) {
  CheckpointReader reader(path_);
  (void)read(reader, kLarge.name, 0, 1);
  fs::resize_file(shard(0), kBlock);
  expect_checkpoint_error(
      [&] { (void)read(reader, kLarge.name, 0, kLarge.numel()); },
      {shard(0).string(), "offset 1048576 failed: the file has become short"});
}

TEST_F(CheckpointReaderTest, AFileThatIsMissingOrNoneIsNamed) {
  fs::rename(shard(1), folder_.path() / "elsewhere");
  expect_fault({shard(1).string(), "cannot be opened: No such file"});
  fs::create_symlink(folder_.path() / "elsewhere", shard(1));
  expect_fault({shard(1).string(), "it is a link, which may lead out"});
  fs::remove(shard(1));
  ASSERT_EQ(::mkfifo(shard(1).c_str(), 0600), 0);
  expect_fault({shard(1).string(), "it is not a file"});
  fs::remove(shard(1));
  fs::create_directory(shard(1));
  expect_fault({shard(1).string(), "it is not a file"});
}

TEST_F(CheckpointReaderTest, AnIndexThatIsMissingOrNoneIsNamed) {
  const fs::path index = index_file(path_);
  fs::rename(index, folder_.path() / "elsewhere");
  expect_index_fault({index.string(), "cannot be opened: No such file",
                      "Give the folder of a checkpoint"});
  fs::create_symlink(folder_.path() / "elsewhere", index);
  expect_index_fault({index.string(), "it is a link"});
  fs::remove(index);
  ASSERT_EQ(::mkfifo(index.c_str(), 0600), 0);
  expect_index_fault({index.string(), "it is not a file"});
  fs::remove(index);
  fs::create_directory(index);
  expect_index_fault({index.string(), "it is not a file"});
}

TEST_F(CheckpointReaderTest, AnIndexOfAnySizeIsReadOrRefused) {
  const fs::path index = index_file(path_);
  flip_bit(index, 40);
  expect_index_fault({index.string(), "last line: the checksum is not that"});
  fs::resize_file(index, 0);
  expect_index_fault({index.string(), "last line: there is no checksum"});
  fs::resize_file(index, (std::uintmax_t{1} << 30) + 1);  // takes no space
  expect_index_fault({index.string(), "too large to be an index"});
}

TEST(CheckpointReader, NamesAFolderThatIsNone) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  for (const fs::path& path : {folder.path() / "none", file, fs::path()}) {
    expect_checkpoint_error([&] { CheckpointReader reader(path); },
                            {"index.json'", "it cannot be opened"});
  }
}

}  // namespace
}  // namespace accordion::testing
