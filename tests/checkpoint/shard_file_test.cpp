// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/shard_file.h"

#include "tests/checkpoint/checkpoint_files.h"

namespace accordion::testing {
namespace {

namespace fs = std::filesystem;

using Shape = std::vector<std::int64_t>;

/// A report of one part, of a tensor of shape [4, 2].
ShardReport report_of(const std::string& file, std::int64_t begin,
                      std::int64_t end) {
  return {.file = {file, 64, {0}},
          .parts = {{"model/w", "F32", {4, 2}, {0, begin, end, 0}}}};
}

CheckpointIndex joined(const std::vector<ShardReport>& reports) {
  CheckpointIndex index;
  add_shards(index, reports);
  return index;
}

void expect_refused(const std::vector<ShardReport>& reports,
                    const std::vector<std::string>& phrases) {
  std::vector<std::string> all = phrases;
  all.insert(all.end(), {"tensor 'model/w'", "Nothing was committed"});
  expect_checkpoint_error([&] { (void)joined(reports); }, all);
}

TEST(ShardFile, IsASafetensorsFileOfRowsWhereRangesAreRows) {
  const TemporaryFolder folder;
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto bytes = std::as_bytes(std::span(values));
  const TensorRange ranges[] = {
      {"rows", "F32", {8, 3, 2}, 12, 24, bytes},
      {"within", "F32", {8, 3, 2}, 13, 24, bytes.subspan(4)},
      {"shifted", "F32", {8, 3, 2}, 13, 25, bytes},
      {"uneven", "F32", {8, 3, 2}, 12, 23, bytes.first(44)},
      {"flat", "F32", {24}, 5, 17, bytes},
      {"scalar", "F32", {}, 0, 1, bytes.first(4)},
      {"no_scalar", "F32", {}, 1, 1, {}},
      {"no_rows", "F32", {8, 3}, 6, 6, {}},
      {"empty", "F32", {8, 0}, 0, 0, {}}};
  const ShardReport report = write_shard(folder.path(), "shard", ranges);
  const SafetensorsFile file(folder.path() / "shard");
  const std::map<std::string, Shape> shapes = {
      {"rows", {2, 3, 2}}, {"within", {11}},    {"shifted", {12}},
      {"uneven", {11}},    {"flat", {12}},      {"scalar", {}},
      {"no_scalar", {0}},  {"no_rows", {0, 3}}, {"empty", Shape{0}}};
  ASSERT_EQ(file.tensors().size(), shapes.size());
  for (const auto& [name, shape] : shapes) {
    ASSERT_NE(file.find(name), nullptr) << name;
    EXPECT_EQ(file.find(name)->shape, shape) << name;
  }
  std::vector<float> got(11);
  file.read(*file.find("within"), 0, got);
  EXPECT_EQ(got, std::vector<float>(values.begin() + 1, values.end()));
  EXPECT_EQ(report.file.name, "shard");
  EXPECT_EQ(report.file.bytes,
            static_cast<std::int64_t>(fs::file_size(folder.path() / "shard")));
}

TEST(ShardFile, TheReportSaysWhereEachRangeLies) {
  const TemporaryFolder folder;
  const CountedTensor a = {"model/a", {10}, 0};
  const CountedTensor b = {"model/b", {5, 3}, 100};
  const CheckpointIndex index = write_shards(folder.path(), {a, b}, 2);
  for (const CountedTensor& tensor : {a, b}) {
    const StoredTensor& stored = index.tensors.at(tensor.name);
    ASSERT_EQ(stored.ranges.size(), 2U);
    for (const StoredRange& range : stored.ranges) {
      std::ifstream file(folder.path() /
                         shard_file_name(static_cast<int>(range.file), 2));
      std::vector<std::int32_t> got(
          static_cast<std::size_t>(range.end - range.begin));
      file.seekg(range.offset);
      file.read(reinterpret_cast<char*>(got.data()),
                static_cast<std::streamsize>(got.size() * 4));
      EXPECT_EQ(got, tensor.elements(range.begin, range.end));
    }
  }
}

TEST(ShardFile, NamesTheTensorThatCannotBeWritten) {
  const TemporaryFolder folder;
  const std::vector<float> values(3);
  const auto bytes = std::as_bytes(std::span(values));
  const TensorRange twice[] = {{"w", "F32", {3}, 0, 3, bytes},
                               {"w", "F32", {3}, 0, 3, bytes}};
  expect_checkpoint_error([&] { (void)write_shard(folder.path(), "a", twice); },
                          {"'w'", "taken"});
  const TensorRange wrong[] = {{"w", "F32", {4}, 0, 4, bytes}};
  expect_checkpoint_error([&] { (void)write_shard(folder.path(), "a", wrong); },
                          {"'w'", "F32 [4] has 16 bytes, but 12 were given"});
  const TensorRange right[] = {{"w", "F32", {3}, 0, 3, bytes}};
  expect_checkpoint_error(
      [&] { (void)write_shard(folder.path() / "none", "a", right); },
      {"cannot be made"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
  (void)write_shard(folder.path(), "a", right);
  expect_checkpoint_error([&] { (void)write_shard(folder.path(), "a", right); },
                          {"never overwritten"});
}

TEST(ShardReport, ReadsBackFromItsText) {
  const ShardReport report = {
      .file = {"shard", (1 << 20) + 5, {~std::uint64_t{0}, 7}},
      .parts = {{"model/w", "F32", {4, 2}, {0, 3, 8, 64}},
                {"model/s", "I64", {}, {0, 0, 1, 128}}}};
  const ShardReport read = parse_shard_report(to_text(report));
  EXPECT_EQ(read.file.name, report.file.name);
  EXPECT_EQ(read.file.bytes, report.file.bytes);
  EXPECT_EQ(read.file.checksums, report.file.checksums);
  ASSERT_EQ(read.parts.size(), 2U);
  EXPECT_EQ(read.parts[0].name, "model/w");
  EXPECT_EQ(read.parts[0].dtype, "F32");
  EXPECT_EQ(read.parts[0].shape, (Shape{4, 2}));
  EXPECT_EQ(read.parts[0].range.begin, 3);
  EXPECT_EQ(read.parts[0].range.end, 8);
  EXPECT_EQ(read.parts[0].range.offset, 64);
  EXPECT_EQ(read.parts[1].shape, Shape{});
}

TEST(AddShards, PutsRangesInOrderWhateverRankHoldsThem) {
  const CheckpointIndex index =
      joined({report_of("a", 5, 8), report_of("b", 0, 2), report_of("c", 2, 5),
              report_of("d", 8, 8)});
  ASSERT_EQ(index.files.size(), 4U);
  EXPECT_EQ(index.files[1].name, "b");
  const auto& ranges = index.tensors.at("model/w").ranges;
  ASSERT_EQ(ranges.size(), 4U);
  for (const auto& [i, file] : {std::pair{0U, 1}, {1U, 2}, {2U, 0}, {3U, 3}}) {
    EXPECT_EQ(ranges[i].file, file);
  }
  EXPECT_EQ(ranges[1].begin, 2);
  EXPECT_EQ(ranges[1].end, 5);
}

TEST(AddShards, RefusesGaps) {
  expect_refused({report_of("a", 0, 3), report_of("b", 4, 8)}, {"element 3"});
  expect_refused({report_of("a", 1, 8)}, {"element 0"});
  expect_refused({report_of("a", 0, 7)}, {"element 7"});
}

TEST(AddShards, RefusesOverlaps) {
  expect_refused({report_of("a", 0, 5), report_of("b", 4, 8)}, {"element 5"});
  expect_refused({report_of("a", 0, 8), report_of("b", 0, 8)}, {"element 8"});
  expect_refused({report_of("a", 0, 8), report_of("b", 3, 5)}, {"element 8"});
  expect_refused({report_of("a", 0, 9)}, {"element 9"});
}

TEST(AddShards, RefusesRanksThatDisagreeOnATensor) {
  ShardReport other = report_of("b", 4, 8);
  other.parts[0].dtype = "BF16";
  expect_refused({report_of("a", 0, 4), other}, {"F32 [4, 2]", "BF16 [4, 2]"});
  other = report_of("b", 4, 8);
  other.parts[0].shape = {2, 4};
  expect_refused({report_of("a", 0, 4), other}, {"F32 [4, 2]", "F32 [2, 4]"});
}

}  // namespace
}  // namespace accordion::testing
