// SPDX-License-Identifier: BSD-3-Clause
//
// `accordion plan` as a user's shell runs it.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/command_shell.h"

namespace accordion {
namespace {

using testing::CommandResult;
using testing::CommandShell;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanCommand : public CommandShell {
 protected:
  std::string output(const std::string& arguments) {
    const CommandResult result = shell("$accordion plan " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }

  /// One line that has all parts.
  void expect_error(const std::string& arguments,
                    std::initializer_list<const char*> parts) {
    const CommandResult result = shell("$accordion plan " + arguments);
    EXPECT_NE(result.exit_code, 0) << arguments;
    for (const char* const part : parts) {
      EXPECT_THAT(result.output, HasSubstr(part));
    }
  }
};

TEST_F(PlanCommand, PlansAConfigANameOrASize) {
  const std::string tiny = ACCORDION_TEST_DATA "/parity/tiny.json";
  EXPECT_THAT(output("'" + tiny + "' --cluster 2xA100 micro_batch=4"),
              AllOf(HasSubstr("1 host of 2 A100-80GB"), HasSubstr("Fits: "),
                    HasSubstr("micro_batch=4")));
  EXPECT_THAT(output("llama-3-8b"), HasSubstr("8.03 billion parameters"));
  EXPECT_THAT(output("--params 70e9 --cluster 16x8xH100-IB seq_len=4096"),
              AllOf(HasSubstr("Note: Of Llama shapes"),
                    HasSubstr("16 hosts of 8 H100-80GB")));
}

TEST_F(PlanCommand, ColoursATerminalOnly) {
  EXPECT_THAT(output("llama-2-7b"), Not(HasSubstr("\x1b[")));
  const CommandResult terminal =
      shell("script -qec \"$accordion plan llama-2-7b\" /dev/null");
  EXPECT_THAT(terminal.output, HasSubstr("\x1b[38;5;"));
}

TEST_F(PlanCommand, OtherFormsAndQuestions) {
  EXPECT_TRUE(nlohmann::json::parse(output("llama-2-7b --json"))["fits"]);
  EXPECT_THAT(output("llama-2-7b --search --cluster 2x8xH100"),
              HasSubstr("plans examined"));
  EXPECT_THAT(output("llama-2-7b --compare micro_batch=1 micro_batch=2"),
              HasSubstr("exposed communication"));
  EXPECT_THAT(output("--max-model --cluster 8xA100-40GB"),
              HasSubstr("as asked"));
  EXPECT_THAT(output("llama-2-70b --min-gpus"), HasSubstr("as asked"));
  EXPECT_THAT(output("--explain llama-70b"), HasSubstr("840.0 GB"));
  EXPECT_THAT(output("--help-keys"), HasSubstr("\nmicro_batch  ("));
  output("llama-2-7b --html plan.html");
  EXPECT_THAT(testing::read_file(folder_.path() / "plan.html"),
              HasSubstr("</html>"));
}

TEST_F(PlanCommand, ReadsSettingsOfLaunchers) {
  folder_.write("ds.json",
                R"({"bf16": {"enabled": true}, "steps_per_print": 10,
                    "zero_optimization": {"stage": 2},
                    "train_micro_batch_size_per_gpu": 2})");
  EXPECT_THAT(
      output("llama-2-7b --deepspeed ds.json"),
      AllOf(HasSubstr("strategy=deepspeed_zero2"), HasSubstr("micro_batch=2"),
            HasSubstr("no meaning for a plan: steps_per_print")));
  folder_.write("fsdp.yaml",
                "mixed_precision: bf16\nfsdp_config:\n"
                "  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
  EXPECT_THAT(output("llama-2-7b --accelerate fsdp.yaml"),
              HasSubstr("strategy=shard_grad_op"));
}

TEST_F(PlanCommand, MistakesNameTheFieldAndTheNearestValue) {
  expect_error("", {"Name one model"});
  expect_error("llama-2-7c", {"'llama-2-7c'", "'llama-2-7b'"});
  expect_error("llama-2-7b --cluster 8xH1000",
               {"'H1000'", "nearest is 'H100'"});
  expect_error("llama-2-7b micro_bach=2", {"Did you mean 'micro_batch'?"});
  expect_error("llama-2-7b tensor=3", {"tensor 3", "nearest valid product"});
  expect_error("--explain gpt3", {"nearest is 'gpt-3'"});
  expect_error("missing.json", {"'missing.json' cannot be read"});
  expect_error("llama-2-7b --search --min-gpus", {"--search", "--min-gpus"});
  expect_error("llama-2-7b --nproc 2", {"--nproc requires --schedule"});
  expect_error("--explain zero llama-2-7b", {"'llama-2-7b'", "--explain"});
  expect_error("--help-keys --cluster 8xA100", {"--cluster", "--help-keys"});
  expect_error("--explain zero --json", {"--json excludes --explain"});
}

}  // namespace
}  // namespace accordion
