// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/answer.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using nlohmann::json;
using testing::expect_message;
using ::testing::HasSubstr;
using ::testing::Not;

json json_of(const PlanInput& input, AnswerOptions options) {
  options.json = true;
  return json::parse(answer(input, options));
}

TEST(Answer, ComparesTwoPlansSideBySide) {
  const AnswerOptions options = {
      .kind = AnswerKind::Compare,
      .compared = {"micro_batch=2,checkpointing=full",
                   "strategy=hybrid,cluster=2x8xA100"}};
  const PlanInput input = {.model = "llama-2-7b", .cluster = "2x8xH100"};
  const std::string text = answer(input, options);
  EXPECT_THAT(text, HasSubstr("micro_batch=2,checkpointing=full"));
  EXPECT_THAT(text, HasSubstr("\ntokens/s a GPU"));
  EXPECT_THAT(text, HasSubstr("\n  recompute"));
  const json value = json_of(input, options);
  ASSERT_EQ(value.size(), 2U);
  EXPECT_EQ(value[0]["settings"]["micro_batch"], "2");
  EXPECT_EQ(value[1]["settings"]["dp_replicate"], "2");
  EXPECT_THAT(value[1]["cluster"].get<std::string>(), HasSubstr("A100"));
}

TEST(Answer, SearchListsPlans) {
  const PlanInput input = {.model = "llama-2-7b", .cluster = "8xH100"};
  const AnswerOptions options = {.kind = AnswerKind::Search};
  const std::string text = answer(input, options);
  EXPECT_THAT(text, HasSubstr("plans examined"));
  EXPECT_THAT(text, HasSubstr("strategy="));
  const json value = json_of(input, options);
  EXPECT_TRUE(value["fits"]);
  EXPECT_EQ(value["plans"].size(), 10U);
}

TEST(Answer, LimitsAreTables) {
  EXPECT_THAT(answer({}, {.kind = AnswerKind::MaxModel}),
              AllOf(HasSubstr("as asked"), HasSubstr("checkpointing=full"),
                    HasSubstr("billion")));
  EXPECT_THAT(answer({.model = "llama-2-70b"}, {.kind = AnswerKind::MinGpus}),
              HasSubstr("in hosts of up to 8"));
  expect_message(
      [] {
        (void)answer({.model = "llama-2-70b"}, {.kind = AnswerKind::MaxModel});
      },
      {"--max-model", "name no MODEL"});
}

TEST(Answer, HtmlIsOnePageThatNeedsNothingElse) {
  const auto path =
      std::filesystem::temp_directory_path() / "accordion_plan.html";
  const PlanInput input = {.model = "llama-2-7b", .cluster = "2x8xH100"};
  for (const AnswerOptions& options :
       {AnswerOptions{.html_path = path.string()},
        AnswerOptions{.kind = AnswerKind::Search, .html_path = path.string()},
        AnswerOptions{.kind = AnswerKind::Compare,
        .compared = {"micro_batch=2", "micro_batch=4"},
        .html_path = path.string()}}) {
    (void)answer(input, options);
    std::ostringstream html;
    html << std::ifstream(path).rdbuf();
    std::filesystem::remove(path);
    EXPECT_THAT(html.str(), HasSubstr("memory over the last microbatch"));
    EXPECT_THAT(html.str(), HasSubstr("streams of the last microbatch"));
    EXPECT_THAT(html.str(), HasSubstr("<title>gather of layers.0: "));
    EXPECT_THAT(html.str(), HasSubstr("<table>"));
    EXPECT_THAT(html.str(), HasSubstr("</html>"));
    EXPECT_THAT(html.str(), Not(HasSubstr("http")));
    EXPECT_THAT(html.str(), Not(HasSubstr("<script")));
    EXPECT_THAT(html.str(), Not(HasSubstr("nan")));
  }
  EXPECT_THROW((void)answer(input, {.html_path = "missing/folder/plan.html"}),
               std::runtime_error);
}

}  // namespace
}  // namespace accordion::plan
