// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/inspect.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/weight_files.h"
#include "tests/checkpoint/written_checkpoint.h"

namespace accordion::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Inspect : public ::testing::Test {
 protected:
  InspectReport inspect_path(const std::filesystem::path& path,
                             const InspectOptions& options = {}) {
    TensorSource source = TensorSource::open(path);
    return inspect(source, options);
  }

  InspectReport three_ranks(const InspectOptions& options = {}) {
    if (!std::filesystem::exists(checkpoint_)) {
      write_three_ranks(checkpoint_);
    }
    return inspect_path(checkpoint_, options);
  }

  /// The file of weights that holds this tensor alone.
  template <class T>
  std::filesystem::path weights(const std::string& dtype,
                                const std::vector<T>& values) {
    const auto path = folder_.path() / (dtype + ".safetensors");
    const TensorData tensors[] = {tensor_data(
        "w", dtype, {static_cast<std::int64_t>(values.size())}, values)};
    write_safetensors(path, tensors, {{"format", "pt"}});
    return path;
  }

  template <class T>
  std::optional<TensorStatistics> statistics_of(const std::string& dtype,
                                                const std::vector<T>& values) {
    return inspect_path(weights(dtype, values), {.with_statistics = true})
        .tensors.at(0)
        .statistics;
  }

  TemporaryFolder folder_;
  std::filesystem::path checkpoint_ = folder_.path() / "step-00000007";
};

TEST_F(Inspect, DescribesACheckpoint) {
  const InspectReport report = three_ranks();
  EXPECT_TRUE(report.is_checkpoint);
  EXPECT_EQ(report.step, 7);
  EXPECT_EQ(report.world_size, 3);
  ASSERT_EQ(report.files.size(), 3U);
  EXPECT_EQ(report.files[2].rank, 2);
  ASSERT_EQ(report.tensors.size(), 7U);
  EXPECT_EQ(report.tensors[2].info.name, "model/w");
  EXPECT_EQ(report.tensors[2].aliases, std::vector<std::string>{"model/tied"});
  EXPECT_TRUE(report.tensors[1].aliases.empty());
  EXPECT_EQ(report.totals.at("model").tensors, 3);
  EXPECT_EQ(report.totals.at("model").numel, 10 + 6 + 2);
  EXPECT_EQ(report.totals.at("optimizer").bytes, 40);
  EXPECT_EQ(report.totals.at("rng").bytes, 3);
}

TEST_F(Inspect, VerifiesEveryByteOfEveryFile) {
  const InspectReport report = three_ranks();
  std::int64_t bytes = 0;
  for (const FileReport& file : report.files) {
    bytes += file.bytes;
  }
  ASSERT_TRUE(report.verified);
  EXPECT_EQ(report.verified->bytes, bytes);
  EXPECT_GE(report.verified->seconds, 0.0);
  EXPECT_FALSE(three_ranks({.verify = false}).verified);
}

TEST_F(Inspect, NamesADamagedBlock) {
  const InspectReport report = three_ranks();
  const std::string file = "shard-00001-of-00003.safetensors";
  damage(checkpoint_ / file, report.files[1].bytes - 1);
  expect_checkpoint_error([&] { three_ranks(); }, {file, "checksum"});
  expect_checkpoint_error([&] { three_ranks({.tensor = "model/w"}); },
                          {file, "'model/w'", "checksum"});
  EXPECT_NO_THROW(three_ranks({.verify = false}));
  EXPECT_NO_THROW(three_ranks({.tensor = "rng/0"}));  // of rank 0's file
}

TEST_F(Inspect, StatisticsLeaveOutWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto found =
      statistics_of<float>("F32", {3.0F, NAN, -4.0F, kInf, -kInf, 1.0F});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->finite, 3);
  EXPECT_EQ(found->nan, 1);
  EXPECT_EQ(found->infinite, 2);
  EXPECT_EQ(found->min, -4.0);
  EXPECT_EQ(found->max, 3.0);
  EXPECT_EQ(found->mean, 0.0);
  EXPECT_DOUBLE_EQ(found->rms, std::sqrt(26.0 / 3.0));
}

// All elements are positive, or negative: 0 is neither their least nor most.
TEST_F(Inspect, StatisticsStartFromTheElements) {
  const auto positive = statistics_of<std::int32_t>("I32", {5, 7});
  EXPECT_EQ(positive->min, 5.0);
  const auto negative = statistics_of<std::int32_t>("I32", {-5, -7});
  EXPECT_EQ(negative->max, -5.0);
}

TEST_F(Inspect, StatisticsAreOfWholeTensorsInChunks) {
  const std::int64_t numel = 200'001;  // 0 to 200000 in four chunks
  const auto found = statistics_of("F32", counting(numel));
  EXPECT_EQ(found->finite, numel);
  EXPECT_EQ(found->max, 200'000.0);
  EXPECT_EQ(found->mean, 100'000.0);
  const double n = 200'000.0;
  EXPECT_NEAR(found->rms, std::sqrt(n * (2 * n + 1) / 6), 1e-6);
}

TEST_F(Inspect, StatisticsOfNothingAndOfUnknownDtypes) {
  const auto nothing = statistics_of<float>("F32", {});
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->finite, 0);
  EXPECT_EQ(nothing->min, 0.0);
  const std::vector<std::uint8_t> eighths = {1, 2};
  EXPECT_FALSE(statistics_of("F8_E4M3", eighths));
  const auto report = inspect_path(folder_.path() / "F8_E4M3.safetensors",
                                   {.with_statistics = true});
  EXPECT_THAT(to_text(report, false), HasSubstr("no numbers"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(report))["tensors"][0]["statistics"]
                  .is_null());
}

TEST_F(Inspect, ShowsOneTensorByNameOrAlias) {
  for (const char* name : {"model/w", "w", "model/tied", "tied"}) {
    const InspectReport report = three_ranks({.tensor = name});
    ASSERT_EQ(report.tensors.size(), 1U);
    EXPECT_EQ(report.tensors[0].info.name, "model/w");
    EXPECT_EQ(report.totals.at("rng").tensors, 3);
  }
  expect_checkpoint_error([&] { three_ranks({.tensor = "nothing"}); },
                          {"holds no tensor 'nothing'"});
  expect_checkpoint_error([&] { three_ranks({.tensor = "dd"}); },
                          {"Did you mean 'model/odd'?"});
}

TEST_F(Inspect, TextNamesWhatThereIs) {
  const std::string text = to_text(three_ranks(), false);
  EXPECT_THAT(text, HasSubstr("step        7\nworld size  3\n"));
  EXPECT_THAT(text, HasSubstr("every block has its checksum"));
  EXPECT_THAT(text, HasSubstr("shard-00001-of-00003.safetensors"));
  EXPECT_THAT(text, HasSubstr("lr              0.25\n"));
  EXPECT_THAT(text, HasSubstr("(2 lines; --values prints it)"));
  EXPECT_THAT(text, Not(HasSubstr("a = 1")));
  EXPECT_THAT(text, HasSubstr("\n  also model/tied\n"));
  EXPECT_THAT(to_text(three_ranks(), true),
              HasSubstr("    a = 1\n    b = 2\n"));
  EXPECT_THAT(to_text(three_ranks({.verify = false}), false),
              HasSubstr("verified    no\n"));
}

TEST_F(Inspect, TextSaysWhatEachRankHas) {
  const std::string text = to_text(three_ranks(), false);
  EXPECT_THAT(text, HasSubstr("rows 2 x 2, 1\n"));
  EXPECT_THAT(text, HasSubstr("elements 4, 2, 0\n"));
  EXPECT_THAT(text, HasSubstr("all on rank 1\n"));
}

TEST_F(Inspect, TextCannotMoveTheCursor) {
  const auto path = folder_.path() / "odd.safetensors";
  const std::vector<float> one = {1.0F};
  const TensorData tensors[] = {tensor_data("a\x1b[2J", "F32", {1}, one)};
  write_safetensors(path, tensors, {{"note", "b\x1b[2J\n"}});
  const InspectReport report = inspect_path(path);
  for (const bool whole : {false, true}) {
    EXPECT_THAT(to_text(report, whole), HasSubstr("a?[2J"));
    EXPECT_THAT(to_text(report, whole), Not(HasSubstr("\x1b")));
  }
}

TEST_F(Inspect, TextOfWeightsHasNoRanks) {
  const InspectReport report = inspect_path(weights("F32", counting(3)));
  const std::string text = to_text(report, false);
  EXPECT_THAT(text, HasSubstr("metadata\n  format  pt\n"));
  EXPECT_THAT(text, HasSubstr("these files have no checksums"));
  EXPECT_THAT(text, Not(HasSubstr("rank")));
  EXPECT_THAT(to_tensor_text(report), Not(HasSubstr("rank 0")));
  EXPECT_EQ(report.totals.at("weights").numel, 3);
}

TEST_F(Inspect, JsonHoldsTheReport) {
  const auto json =
      nlohmann::json::parse(to_json(three_ranks({.with_statistics = true})));
  EXPECT_EQ(json["kind"], "checkpoint");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["values"]["trainer/config"], "a = 1\nb = 2\n");
  EXPECT_EQ(json["values"]["lr"], 0.25);
  EXPECT_EQ(json["files"][2]["rank"], 2);
  EXPECT_GT(json["verified"]["bytes"], 0);
  EXPECT_EQ(json["totals"]["model"]["elements"], 18);
  const auto& w = json["tensors"][2];
  EXPECT_EQ(w["name"], "model/w");
  EXPECT_EQ(w["shape"], (std::vector<int>{5, 2}));
  EXPECT_EQ(w["pieces"][2]["begin"], 8);
  EXPECT_EQ(w["pieces"][2]["rank"], 2);
  EXPECT_EQ(w["statistics"]["max"], 9.0);
  EXPECT_EQ(w["statistics"]["mean"], 4.5);
  const auto bare =
      nlohmann::json::parse(to_json(three_ranks({.verify = false})));
  EXPECT_TRUE(bare["verified"].is_null());
  EXPECT_FALSE(bare["tensors"][0].contains("statistics"));
}

}  // namespace
}  // namespace accordion::testing
