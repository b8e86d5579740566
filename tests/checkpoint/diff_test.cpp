// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/diff.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "tests/checkpoint/weight_files.h"
#include "tests/checkpoint/written_checkpoint.h"

namespace accordion::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Diff : public ::testing::Test {
 protected:
  DiffReport diff_paths(const std::filesystem::path& a,
                        const std::filesystem::path& b) {
    TensorSource source_a = TensorSource::open(a);
    TensorSource source_b = TensorSource::open(b);
    return diff(source_a, source_b);
  }

  std::filesystem::path write(const std::string& name,
                              const std::vector<TensorData>& tensors) {
    const auto path = folder_.path() / name;
    write_safetensors(path, tensors);
    return path;
  }

  /// The difference of one tensor [numel].
  template <class A, class B>
  TensorDifference difference(const std::string& dtype_a,
                              const std::vector<A>& a,
                              const std::string& dtype_b,
                              const std::vector<B>& b) {
    const auto numel = static_cast<std::int64_t>(a.size());
    return diff_paths(write("a", {tensor_data("w", dtype_a, {numel}, a)}),
                      write("b", {tensor_data("w", dtype_b, {numel}, b)}))
        .tensors.at(0);
  }

  TensorDifference floats(const std::vector<float>& a,
                          const std::vector<float>& b) {
    return difference("F32", a, "F32", b);
  }

  TemporaryFolder folder_;
};

TEST_F(Diff, FindsTheLargestDifferenceAndWhereItIs) {
  const TensorDifference found =
      floats({1.0F, 8.0F, 0.5F, -2.0F}, {1.0F, 10.0F, 0.25F, -5.0F});
  EXPECT_EQ(found.differing, 3);
  EXPECT_EQ(found.max_absolute, 3.0);
  EXPECT_DOUBLE_EQ(found.max_relative, 3.0 / 5.0);
  EXPECT_EQ(found.at, 3);
  EXPECT_EQ(found.a, -2.0);
  EXPECT_EQ(found.b, -5.0);
  EXPECT_FALSE(found.is_identical());
}

TEST_F(Diff, LargestRelativeDifferenceMayBeElsewhere) {
  const TensorDifference found = floats({100.0F, 0.5F}, {104.0F, 0.25F});
  EXPECT_EQ(found.max_absolute, 4.0);
  EXPECT_EQ(found.at, 0);
  EXPECT_EQ(found.max_relative, 0.5);
}

TEST_F(Diff, FindsOneElementBehindManyChunks) {
  const std::vector<float> a = counting(200'000);
  std::vector<float> b = a;
  b[150'001] += 1.0F;
  const TensorDifference found = floats(a, b);
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.at, 150'001);
  EXPECT_EQ(found.a, 150'001.0);
  EXPECT_TRUE(floats(a, a).is_identical());
}

TEST_F(Diff, NotANumberEqualsOnlyItself) {
  EXPECT_TRUE(floats({NAN}, {NAN}).is_identical());
  const TensorDifference one = floats({NAN, 1.0F}, {2.0F, 5.0F});
  EXPECT_EQ(one.max_absolute, kInfinity);
  EXPECT_EQ(one.max_relative, kInfinity);
  EXPECT_EQ(one.at, 0);
  EXPECT_TRUE(std::isnan(one.a));
  EXPECT_FALSE(is_same(one, 1e30));
  const TensorDifference payloads = difference<std::uint32_t, std::uint32_t>(
      "F32", {0x7fc00000}, "F32", {0x7fc00001});
  EXPECT_EQ(payloads.differing, 1);
  EXPECT_EQ(payloads.max_absolute, 0.0);
}

TEST_F(Diff, InfinitiesDifferInfinitely) {
  const auto inf = static_cast<float>(kInfinity);
  EXPECT_TRUE(floats({inf}, {inf}).is_identical());
  EXPECT_EQ(floats({inf}, {-inf}).max_absolute, kInfinity);
  EXPECT_EQ(floats({inf}, {1.0F}).max_relative, kInfinity);
}

TEST_F(Diff, BitsCountWithoutATolerance) {
  const TensorDifference zeros = floats({0.0F}, {-0.0F});
  EXPECT_EQ(zeros.differing, 1);
  EXPECT_EQ(zeros.max_absolute, 0.0);
  EXPECT_EQ(zeros.max_relative, 0.0);
  EXPECT_FALSE(is_same(zeros, std::nullopt));
  EXPECT_TRUE(is_same(zeros, 0.0));
}

TEST_F(Diff, ToleranceIsInclusive) {
  const TensorDifference quarter = floats({1.0F}, {1.25F});
  EXPECT_TRUE(is_same(quarter, 0.25));
  EXPECT_FALSE(is_same(quarter, 0.249));
}

TEST_F(Diff, LargeIntegersDifferByOneAtLeast) {
  const std::int64_t large = std::int64_t{1} << 60;
  const auto found = difference<std::int64_t, std::int64_t>("I64", {large},
                                                            "I64", {large + 1});
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.max_absolute, 1.0);
  EXPECT_FALSE(is_same(found, 0.0));
}

TEST_F(Diff, ComparesValuesOfDifferentDtypes) {
  const auto found = difference<float, std::uint16_t>(
      "F32", {1.0F, 3.5F}, "BF16", {0x3f80, 0x4040});  // 1 and 3
  EXPECT_EQ(found.differing, 1);
  EXPECT_EQ(found.max_absolute, 0.5);
  const auto equal =
      difference<float, std::uint16_t>("F32", {1.0F}, "BF16", {0x3f80});
  EXPECT_EQ(equal.differing, 0);
  EXPECT_FALSE(is_same(equal, std::nullopt));
  EXPECT_TRUE(is_same(equal, 0.0));
}

TEST_F(Diff, DtypesWithoutNumbersAreComparedByTheirBits) {
  const std::vector<std::uint8_t> a = {1, 2, 3};
  const std::vector<std::uint8_t> b = {1, 2, 4};
  EXPECT_TRUE(difference("F8_E5M2", a, "F8_E5M2", a).is_identical());
  const auto found = difference("F8_E5M2", a, "F8_E5M2", b);
  EXPECT_FALSE(found.has_values);
  EXPECT_EQ(found.differing, 1);
  EXPECT_FALSE(is_same(found, 1e30));
  EXPECT_EQ(difference("F8_E5M2", a, "F8_E4M3", a).differing, 3);
}

TEST_F(Diff, EmptyTensorsAreTheSame) {
  EXPECT_TRUE(floats({}, {}).is_identical());
}

TEST_F(Diff, SortsByTheLargestDifferenceAndListsTheRest) {
  const std::vector<float> one = {1.0F};
  const std::vector<float> two = {2.0F};
  const std::vector<float> nine = {9.0F};
  const auto a = write("a", {tensor_data("big", "F32", {1}, one),
                             tensor_data("first", "F32", {1}, one),
                             tensor_data("same", "F32", {1}, one),
                             tensor_data("shape", "F32", {1}, one),
                             tensor_data("small", "F32", {1}, one)});
  const auto b = write("b", {tensor_data("big", "F32", {1}, nine),
                             tensor_data("last", "F32", {1}, one),
                             tensor_data("same", "F32", {1}, one),
                             tensor_data("shape", "F32", {1, 1}, one),
                             tensor_data("small", "F32", {1}, two)});
  const DiffReport report = diff_paths(a, b);
  ASSERT_EQ(report.tensors.size(), 3U);
  EXPECT_EQ(report.tensors[0].name, "big");
  EXPECT_EQ(report.tensors[1].name, "small");
  EXPECT_EQ(report.tensors[2].name, "same");
  EXPECT_THAT(report.only_a, ElementsAre("first"));
  EXPECT_THAT(report.only_b, ElementsAre("last"));
  EXPECT_EQ(report.shapes.at(0).name, "shape");
  EXPECT_FALSE(is_same(report, 100.0));
  const std::string text = to_text(report, 1.0, false);
  EXPECT_THAT(text, HasSubstr("only in a: 1\n  first\n"));
  EXPECT_THAT(text, HasSubstr("only in b: 1\n  last\n"));
  EXPECT_THAT(text, HasSubstr("  shape  [1]  |  [1, 1]\n"));
  EXPECT_THAT(text, HasSubstr("1 of 4 tensors in both are the same"));
  EXPECT_THAT(text, HasSubstr("1 more differ by at most 1"));
  EXPECT_THAT(text, Not(HasSubstr("\nsame")));
  EXPECT_THAT(to_text(report, 1.0, true), HasSubstr("\nsame"));
}

TEST_F(Diff, NamesWhereInTheTensorTheDifferenceIs) {
  const std::vector<float> a = counting(24);
  std::vector<float> b = a;
  b[1 * 12 + 0 * 4 + 2] = 0.0F;
  const DiffReport report =
      diff_paths(write("a", {tensor_data("w", "F32", {2, 3, 4}, a)}),
                 write("b", {tensor_data("w", "F32", {2, 3, 4}, b)}));
  EXPECT_THAT(to_text(report, std::nullopt, false),
              HasSubstr("1 of 24       14         1  [1, 0, 2]  14  0\n"));
}

TEST_F(Diff, CheckpointsOfOtherWorldSizesCompareByTensor) {
  write_three_ranks(folder_.path() / "three");
  WrittenCheckpoint one(1);
  for (const char* name : {"model/w", "optimizer/m/w"}) {
    one.add(0, name, "F32", {5, 2}, 0, counting(10));
  }
  one.add(0, "model/odd", "F32", {2, 3}, 0, counting(6, 100));
  one.add(0, "model/bias", "F32", {2}, 0, counting(2, 201));
  one.commit(folder_.path() / "one");
  const DiffReport report =
      diff_paths(folder_.path() / "three", folder_.path() / "one");
  ASSERT_EQ(report.tensors.size(), 4U);
  EXPECT_EQ(report.tensors[0].name, "model/bias");
  EXPECT_EQ(report.tensors[0].max_absolute, 1.0);
  EXPECT_TRUE(report.tensors[1].is_identical());
  EXPECT_THAT(report.only_a, ElementsAre("rng/0", "rng/1", "rng/2"));
  EXPECT_EQ(report.left_out, 0);
}

// Weights name what a checkpoint calls model/w, and a tied parameter by either
// of its names.
TEST_F(Diff, WeightsCompareWithTheModelOfACheckpoint) {
  write_three_ranks(folder_.path() / "c");
  const auto w = counting(10);
  const auto odd = counting(6, 100);
  const auto bias = counting(2, 200);
  const auto path =
      write("model.safetensors", {tensor_data("w", "F32", {5, 2}, w),
                                  tensor_data("odd", "F32", {2, 3}, odd),
                                  tensor_data("tied", "F32", {5, 2}, w),
                                  tensor_data("bias", "F32", {2}, bias)});
  for (const bool checkpoint_first : {true, false}) {
    const auto checkpoint = folder_.path() / "c";
    const DiffReport report = checkpoint_first ? diff_paths(checkpoint, path)
                                               : diff_paths(path, checkpoint);
    EXPECT_TRUE(is_same(report, std::nullopt));
    EXPECT_EQ(report.tensors.size(), 4U);
    EXPECT_EQ(report.tensors[1].name, "odd");
    EXPECT_EQ(report.left_out, 4);
  }
}

TEST_F(Diff, NamesADamagedBlock) {
  write_three_ranks(folder_.path() / "a");
  write_three_ranks(folder_.path() / "b");
  const auto file = folder_.path() / "b" / "shard-00002-of-00003.safetensors";
  damage(file, static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1);
  expect_checkpoint_error(
      [&] { diff_paths(folder_.path() / "a", folder_.path() / "b"); },
      {file.string(), "checksum"});
}

}  // namespace
}  // namespace accordion::testing
