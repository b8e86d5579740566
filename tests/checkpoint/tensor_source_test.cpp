// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/tensor_source.h"

#include <cmath>
#include <limits>

#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/tensor_cursor.h"
#include "tests/checkpoint/weight_files.h"
#include "tests/checkpoint/written_checkpoint.h"

namespace accordion::testing {
namespace {

std::vector<float> read_floats(TensorSource& source, const std::string& name,
                               std::int64_t begin, std::size_t numel) {
  std::vector<float> values(numel);
  source.read(*source.find(name), begin,
              std::as_writable_bytes(std::span(values)));
  return values;
}

template <class T>
std::vector<double> as_fp64(const std::string& dtype,
                            const std::vector<T>& from) {
  std::vector<double> to(from.size());
  detail::conversion_to_fp64(dtype)(from.data(), to.data(),
                                    static_cast<std::int64_t>(from.size()));
  return to;
}

TEST(TensorSource, ReadsACheckpointAcrossItsRanges) {
  const TemporaryFolder folder;
  write_three_ranks(folder.path() / "c");
  TensorSource source = TensorSource::open(folder.path() / "c");
  ASSERT_NE(source.checkpoint(), nullptr);
  EXPECT_EQ(source.newest_of(), 0);
  ASSERT_EQ(source.tensors().size(), 7U);
  EXPECT_EQ(source.tensors()[0].name, "model/bias");
  EXPECT_EQ(read_floats(source, "model/w", 3, 6), counting(6, 3));
  const auto pieces = source.pieces(*source.find("model/w"));
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[1].rank, 1);
  EXPECT_EQ(pieces[1].file, "shard-00001-of-00003.safetensors");
  EXPECT_EQ(pieces[1].begin, 4);
  EXPECT_EQ(pieces[1].end, 8);
}

TEST(TensorSource, FindsATensorByItsAlias) {
  const TemporaryFolder folder;
  write_three_ranks(folder.path() / "c");
  const TensorSource source = TensorSource::open(folder.path() / "c");
  ASSERT_NE(source.find("model/tied"), nullptr);
  EXPECT_EQ(source.find("model/tied")->name, "model/w");
  EXPECT_EQ(source.find("tied"), nullptr);
  EXPECT_EQ(source.find("model/x"), nullptr);
}

TEST(TensorSource, OpensTheNewestCheckpointOfARun) {
  const TemporaryFolder folder;
  const auto checkpoints = folder.path() / "checkpoints";
  write_three_ranks(checkpoints / step_folder_name(9));
  write_three_ranks(checkpoints / step_folder_name(10));
  std::filesystem::create_directories(checkpoints /
                                      (step_folder_name(11) + ".unfinished"));
  for (const auto& path : {folder.path(), checkpoints}) {
    const TensorSource source = TensorSource::open(path);
    EXPECT_EQ(source.path(), checkpoints / "step-00000010");
    EXPECT_EQ(source.newest_of(), 2);
  }
}

TEST(TensorSource, ReadsWeightsAsTheyAreStored) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> indices = {10, 11, 12};
  const TensorData tensors[] = {tensor_data("i", "I64", {3}, indices)};
  write_safetensors(folder.path() / "model.safetensors", tensors);
  for (const auto& path :
       {folder.path(), folder.path() / "model.safetensors"}) {
    TensorSource source = TensorSource::open(path);
    EXPECT_NE(source.weights(), nullptr);
    const TensorInfo& tensor = *source.find("i");
    EXPECT_EQ(tensor.bytes, 24);
    std::vector<std::int64_t> got(2);
    source.read(tensor, 1, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, (std::vector<std::int64_t>{11, 12}));
    const TensorPiece piece = source.pieces(tensor).at(0);
    EXPECT_EQ(piece.rank, std::nullopt);
    EXPECT_EQ(piece.file, "model.safetensors");
    EXPECT_EQ(piece.offset, source.weights()->find("i").begin);
  }
}

TEST(TensorSource, NamesWhatItCannotOpen) {
  const TemporaryFolder folder;
  expect_checkpoint_error([&] { TensorSource::open(folder.path()); },
                          {folder.path().string(), "no complete checkpoint"});
  expect_checkpoint_error([&] { TensorSource::open(folder.path() / "no"); },
                          {"there is nothing at"});
  expect_checkpoint_error(
      [&] { TensorSource::open(folder.write("text.txt", "abc")); },
      {"text.txt", "does not fit a file"});
}

TEST(TensorSource, KnowsTheRankOfAShard) {
  EXPECT_EQ(rank_of_shard("shard-00002-of-00003.safetensors", 3), 2);
  EXPECT_EQ(rank_of_shard("shard-00002-of-00004.safetensors", 3), std::nullopt);
  EXPECT_EQ(rank_of_shard("shard-00003-of-00003.safetensors", 3), std::nullopt);
  EXPECT_EQ(rank_of_shard("shard-.safetensors", 1), std::nullopt);
  EXPECT_EQ(rank_of_shard("model.safetensors", 1), std::nullopt);
}

TEST(TensorCursor, WalksInChunksOfBoundedSize) {
  const TemporaryFolder folder;
  const std::int64_t numel = 2 * TensorCursor::kChunkElements + 3;
  const std::vector<float> values = counting(numel);
  const TensorData tensors[] = {tensor_data("w", "F32", {numel}, values)};
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, tensors);
  TensorSource source = TensorSource::open(path);
  TensorCursor cursor(source, *source.find("w"));
  std::int64_t at = 0;
  while (cursor.next()) {
    EXPECT_EQ(cursor.begin(), at);
    EXPECT_LE(cursor.numel(), TensorCursor::kChunkElements);
    for (const double value : cursor.values()) {
      ASSERT_EQ(value, static_cast<double>(at++));
    }
  }
  EXPECT_EQ(at, numel);
}

TEST(Fp64Conversion, KnowsEachDtypeOfNumbers) {
  using Doubles = std::vector<double>;
  EXPECT_EQ(as_fp64<double>("F64", {0.1}), Doubles{0.1});
  EXPECT_EQ(as_fp64<float>("F32", {0.5F, -3.0F}), (Doubles{0.5, -3.0}));
  EXPECT_EQ(as_fp64<std::uint16_t>("F16", {0x3c00, 0x0001}),
            (Doubles{1.0, 0x1p-24}));
  EXPECT_EQ(as_fp64<std::uint16_t>("BF16", {0x3f80, 0xc040}),
            (Doubles{1.0, -3.0}));
  EXPECT_EQ(as_fp64<std::int64_t>("I64", {-(1LL << 40)}), Doubles{-0x1p40});
  EXPECT_EQ(as_fp64<std::int32_t>("I32", {-70000}), Doubles{-70000});
  EXPECT_EQ(as_fp64<std::int16_t>("I16", {-300}), Doubles{-300});
  EXPECT_EQ(as_fp64<std::int8_t>("I8", {-1}), Doubles{-1});
  EXPECT_EQ(as_fp64<std::uint64_t>("U64", {~0ULL}), Doubles{0x1p64});
  EXPECT_EQ(as_fp64<std::uint32_t>("U32", {~0U}), Doubles{4294967295.0});
  EXPECT_EQ(as_fp64<std::uint16_t>("U16", {0xffff}), Doubles{65535});
  EXPECT_EQ(as_fp64<std::uint8_t>("U8", {0xff}), Doubles{255});
  EXPECT_EQ(as_fp64<std::uint8_t>("BOOL", {0, 1, 7}), (Doubles{0, 1, 1}));
  EXPECT_TRUE(std::isnan(as_fp64<std::uint16_t>("BF16", {0x7fc0})[0]));
  EXPECT_EQ(detail::conversion_to_fp64("F8_E4M3"), nullptr);
}

}  // namespace
}  // namespace accordion::testing
