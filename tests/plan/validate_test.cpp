// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/validate.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using nlohmann::json;
using testing::expect_message;

const RowResult& find(const std::vector<RowResult>& results,
                      const std::string& id, const std::string& metric) {
  for (const RowResult& result : results) {
    if (result.id == id && result.metric == metric) {
      return result;
    }
  }
  throw std::runtime_error("no result " + id + " " + metric);
}

/// A handful of published rows, each with its source.
class Validate : public ::testing::Test {
 protected:
  const std::vector<RowResult> results_ =
      validate_file(ACCORDION_PUBLISHED_ROWS);
};

TEST_F(Validate, PublishedThroughputIsPredictedWithin12Percent) {
  for (const RowResult& result : results_) {
    if (result.metric == "tokens_per_s_per_gpu") {
      EXPECT_LT(std::abs(result.error().value()), 0.12) << result.id;
    }
  }
}

TEST_F(Validate, PublishedMemoryIsPredictedWithin12Percent) {
  for (const RowResult& result : results_) {
    if (result.metric == "peak_mem_gib") {
      EXPECT_LT(std::abs(result.error().value()), 0.12) << result.id;
    }
  }
}

TEST_F(Validate, FormulasAreExact) {
  EXPECT_NEAR(find(results_, "zero-model-states-7.5B-N64", "p_os_g_gb")
                  .predicted.value(),
              16.64, 0.01);
}

TEST_F(Validate, EveryRowHasALine) {
  for (const RowResult& result : results_) {
    const json line = json::parse(to_json_line(result));
    EXPECT_TRUE(line.contains("id") && line.contains("metric") &&
                line.contains("published") && line.contains("predicted") &&
                line.contains("error"));
    EXPECT_EQ(line["error"].is_null(), line.contains("reason")) << line;
  }
}

TEST(ValidateRow, SaysWhyARowIsNotModelled) {
  const auto reason = [](json row) {
    row["id"] = "row";
    return validate_row(row).at(0).reason;
  };
  EXPECT_NE(reason({{"shape", json::object()}}).find("no shape"),
            std::string::npos);
  EXPECT_NE(reason({{"kind", "training_run"}}).find("no GPU"),
            std::string::npos);
}

TEST(ValidateRow, BadFilesAreErrors) {
  expect_message([] { validate_rows(json::object()); }, {"array of rows"});
  expect_message([] { validate_rows(json::array({1})); }, {"'id'"});
  EXPECT_THROW(validate_file("no/such/file.json"), std::runtime_error);
}

TEST(ValidateRow, SummaryCountsPrimaryFigures) {
  std::vector<RowResult> results;
  for (const double predicted : {1.1, 1.2, 0.7}) {
    results.push_back({.id = "a",
                       .metric = "m",
                       .group = "g",
                       .primary = true,
                       .published = 1.0,
                       .predicted = predicted,
                       .reason = ""});
  }
  results.push_back(results[0]);
  results.back().primary = false;
  const GroupSummary summary = summarize(results).at(0);
  EXPECT_EQ(summary.count, 3);
  EXPECT_NEAR(summary.median, 0.2, 1e-9);
  EXPECT_NEAR(summary.largest, 0.3, 1e-9);
  EXPECT_NEAR(summary.mean_signed, 0.0, 1e-9);
  EXPECT_NE(to_table(summarize(results)).find("| g | 3 | 0 | 20.0 %"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::plan
