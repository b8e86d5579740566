// SPDX-License-Identifier: BSD-3-Clause
//
// The accordion command as a user's shell runs it.
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/models/llama_parameters.h"
#include "tests/checkpoint/model_checkpoint.h"
#include "tests/cli/command_shell.h"
#include "tests/data/fixtures.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::CommandResult;
using testing::CommandShell;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;

std::string fixture(const std::string& name) {
  return fmt::format("{}/parity/{}", ACCORDION_TEST_DATA, name);
}

class Cli : public CommandShell {
 protected:
  /// A configuration of short steps; "run" is its run folder.
  void write_config() {
    folder_.write("run.toml",
                  fmt::format("model.config = \"{}\"\n"
                              "data.path = \"{}\"\n"
                              "data.seq_len = 32\n"
                              "[train]\nsteps = 4\nbatch_size = 1\n"
                              "threads = 1\n[run]\ndir = \"run\"\n"
                              "[log]\nevery = 2\n",
                              fixture("tiny.json"), fixture("data.txt")));
  }

  nlohmann::json summary() {
    std::string text = read_file(folder_.path() / "run" / "metrics.jsonl");
    text.pop_back();
    return nlohmann::json::parse(text.substr(text.rfind('\n') + 1));
  }
};

TEST_F(Cli, VersionAndHelpNameTheProgram) {
  EXPECT_THAT(shell("$accordion --version").output, HasSubstr("accordion 0."));
  const CommandResult help = shell("$accordion --help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"train", "run", "plan", "bench", "inspect", "diff", "export"}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
  EXPECT_NE(shell("$accordion").exit_code, 0);
}

TEST_F(Cli, HelpConfigNeedsNoConfiguration) {
  const CommandResult help = shell("$accordion train --help-config");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output,
              HasSubstr("fsdp.strategy  (full_shard | shard_grad_op"));
  const CommandResult nothing = shell("$accordion train");
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.output, HasSubstr("No configuration was named"));
}

TEST_F(Cli, PrintedConfigIsAConfig) {
  write_config();
  const CommandResult first =
      shell("$accordion train run.toml train.steps=7 --print-config");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_THAT(first.output, HasSubstr("steps = 7\n"));
  folder_.write("again.toml", first.output);
  EXPECT_EQ(shell("$accordion train again.toml --print-config").output,
            first.output);
}

TEST_F(Cli, MistakesInTheConfigEndBeforeAnyRankStarts) {
  write_config();
  const CommandResult key =
      shell("$accordion train run.toml train.step=7 --nproc 2");
  EXPECT_EQ(key.exit_code, 1);
  EXPECT_THAT(key.output, HasSubstr("Did you mean 'train.steps'?"));
  const CommandResult text =
      shell("$accordion train run.toml data.path=missing.txt --nproc 2");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.output, HasSubstr("missing.txt"));
  EXPECT_THAT(text.output, Not(HasSubstr("rank")));
  const CommandResult replicas = shell(
      "$accordion train run.toml fsdp.strategy=hybrid fsdp.replicas=2 "
      "--nproc 3");
  EXPECT_EQ(replicas.exit_code, 1);
  EXPECT_THAT(replicas.output, HasSubstr("2 replicas do not divide 3 ranks"));
  EXPECT_THAT(replicas.output, Not(HasSubstr("[rank")));
  EXPECT_FALSE(fs::exists(folder_.path() / "run"));
}

TEST_F(Cli, TrainStartsRanksAndReportsInLines) {
  write_config();
  const CommandResult result = shell("$accordion train run.toml --nproc 2");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\nstep 4/4  loss "));
  EXPECT_THAT(result.output,
              HasSubstr("\nRun folder: " + (folder_.path() / "run").string()));
  EXPECT_THAT(result.output, Not(HasSubstr("\r")));
  EXPECT_EQ(summary()["world"], 2);
  EXPECT_TRUE(fs::exists(folder_.path() / "run" / "log-rank1.txt"));
}

TEST_F(Cli, TrainRewritesOneLineOnATerminal) {
  write_config();
  const CommandResult result =
      shell("script -qec \"$accordion train run.toml --nproc 2\" /dev/null");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\r\x1b[Kstep 4/4  loss "));
}

TEST_F(Cli, TrainIsARankUnderALauncher) {
  write_config();
  const CommandResult result =
      shell("$accordion run --nproc 2 -- $accordion train run.toml");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("[rank 0] step 4/4"));
  EXPECT_EQ(summary()["world"], 2);

  const CommandResult both =
      shell("$accordion run --nproc 2 -- $accordion train run.toml --nproc 2");
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.output, HasSubstr("Leave --nproc out"));
}

TEST_F(Cli, SignalEndsTheRunAfterTheStepWithItsSummary) {
  write_config();
  const CommandResult result = shell(
      "$accordion train run.toml train.steps=1000000 --nproc 2 &\n"
      "until [ -s run/metrics.jsonl ]; do sleep 0.05; done\n"
      "kill -TERM $!\n"
      "wait $!");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("stopped by a signal after"));
  EXPECT_EQ(summary()["interrupted"], true);
}

TEST_F(Cli, RunThatIsStillTrainedIsNotResumed) {
  write_config();
  const CommandResult result = shell(
      "$accordion train run.toml train.steps=1000000 --nproc 2 &\n"
      "until [ -s run/metrics.jsonl ]; do sleep 0.05; done\n"
      "$accordion train run.toml --resume auto; second=$?\n"
      "kill -TERM $!\n"
      "wait $! && exit $second");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("is being trained by another process"));
  EXPECT_EQ(summary()["interrupted"], true);
}

TEST_F(Cli, ResumedRunWhoseTimeIsSpentHasNothingLeftToDo) {
  write_config();
  const std::string line =
      "$accordion train run.toml train.steps=0 train.seconds=0.0001 "
      "--resume auto";
  const CommandResult first = shell(line);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const CommandResult again = shell(line);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("has done its 1 steps"));
}

TEST_F(Cli, RunHandsOnWhatARankReturned) {
  const CommandResult result =
      shell("$accordion run --nproc 2 -- sh -c 'exit $((RANK * 3))'");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.output, HasSubstr("rank 1"));
}

TEST_F(Cli, BenchPrintsATableOrJsonAndLeavesNoRunFolder) {
  write_config();
  const CommandResult table =
      shell("$accordion bench run.toml --nproc 2 --steps 2");
  ASSERT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output, HasSubstr("full_shard in fp32 over 2 ranks (shm)"));
  EXPECT_THAT(table.output, HasSubstr("\nMFU"));
  EXPECT_FALSE(fs::exists(folder_.path() / "run"));
  const CommandResult json = shell(
      "$accordion bench run.toml fsdp.param_dtype=bf16 --nproc 1 "
      "--steps 2 --json --trace step.json 2> /dev/null");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  const auto result = nlohmann::json::parse(json.output);
  EXPECT_EQ(result["param_dtype"], "bf16");
  EXPECT_EQ(result["step_ms"]["each"].size(), 2U);
  EXPECT_FALSE(nlohmann::json::parse(
                   read_file(folder_.path() / "step.json"))["traceEvents"]
                   .empty());
}

TEST_F(Cli, BenchTracesEveryRankWhereTheFileNamesIt) {
  write_config();
  const CommandResult bench = shell(
      "$accordion bench run.toml --nproc 2 --steps 1 --trace step-{rank}.json");
  ASSERT_EQ(bench.exit_code, 0) << bench.output;
  for (const int rank : {0, 1}) {
    const auto trace = nlohmann::json::parse(
        read_file(folder_.path() / ("step-" + std::to_string(rank) + ".json")));
    EXPECT_EQ(trace["traceEvents"][0]["pid"], rank);
    EXPECT_GT(trace["otherData"]["begin_ns"], 0);
  }
}

TEST_F(Cli, BenchSaysWhatIsWrongBeforeItMeasures) {
  write_config();
  EXPECT_THAT(shell("$accordion bench").output,
              HasSubstr("config is required"));
  EXPECT_THAT(shell("$accordion bench run.toml train.step=7").output,
              HasSubstr("Did you mean 'train.steps'?"));
  EXPECT_THAT(shell("$accordion bench run.toml --steps 0").output,
              HasSubstr("--steps"));
  const CommandResult trace =
      shell("$accordion bench run.toml --nproc 2 --trace missing/step.json");
  EXPECT_EQ(trace.exit_code, 1);
  EXPECT_THAT(trace.output,
              HasSubstr("The trace cannot be written to 'missing/step.json'"));
  EXPECT_THAT(trace.output, Not(HasSubstr("rank")));
  EXPECT_THAT(
      shell("$accordion run --nproc 2 -- $accordion bench run.toml --nproc 2")
          .output,
      HasSubstr("[bench] --nproc 2 starts ranks"));
}

TEST_F(Cli, PlanPrintsTheScheduleOfAModelOrARun) {
  const CommandResult model = shell(fmt::format(
      "$accordion plan --schedule '{}' --nproc 4", fixture("tiny.json")));
  ASSERT_EQ(model.exit_code, 0) << model.output;
  EXPECT_THAT(model.output, HasSubstr("model.layers.3"));
  EXPECT_THAT(model.output, HasSubstr("5 units; a pass unshards 8 times"));
  write_config();
  const CommandResult run =
      shell("$accordion plan --schedule run.toml fsdp.strategy=no_shard");
  EXPECT_THAT(run.output, HasSubstr("reduces 5 times"));
  EXPECT_EQ(shell("$accordion plan --schedule missing.json").exit_code, 1);
}

TEST_F(Cli, BenchCalibratesAndPredicts) {
  EXPECT_THAT(shell("$accordion bench calibrate --help").output,
              HasSubstr("--to"));
  write_config();
  const CommandResult missing =
      shell("$accordion bench run.toml --cluster missing.toml");
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.output, HasSubstr("'missing.toml' cannot be read"));
}

TEST_F(Cli, PlanExecutesAStepWithoutMemory) {
  const CommandResult result =
      shell(fmt::format("$accordion plan --dry-run '{}' --nproc 4096 "
                        "fsdp.strategy=shard_grad_op",
                        fixture("tiny.json")));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 0 of 4096"));
  EXPECT_THAT(result.output, HasSubstr("reduce-scatter"));
  EXPECT_THAT(result.output, HasSubstr("sharded_parameters"));
}

TEST_F(Cli, PlanComparesItselfWithPublishedRuns) {
  const CommandResult result =
      shell("$accordion plan --validate '" ACCORDION_TEST_DATA
            "/../plan/published_rows.json'");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\"metric\":\"tokens_per_s_per_gpu\""));
  EXPECT_NE(shell("$accordion plan --validate missing.json").exit_code, 0);
  EXPECT_NE(shell("$accordion plan").exit_code, 0);
}

TEST_F(Cli, PlanShowsThePassesOfAnAccumulatedStep) {
  const std::string plan = fmt::format(
      "$accordion plan --schedule '{}' --nproc 4 fsdp.strategy=hybrid "
      "fsdp.accumulation=unsharded ",
      fixture("tiny.json"));
  EXPECT_THAT(shell(plan + "--microbatch first").output,
              HasSubstr("reduces 0 times"));
  const CommandResult last = shell(plan + "--microbatch last");
  EXPECT_THAT(last.output, HasSubstr("reduces 5 times"));
  EXPECT_THAT(last.output, HasSubstr("all-reduces 5 times over replicas"));
  const CommandResult none = shell(plan + "--microbatch second");
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.output, HasSubstr("middle"));
}

TEST_F(Cli, ExportMakesAHuggingFaceFolderOfARun) {
  const std::string config = read_file(fixture("tiny.json"));
  testing::ModelCheckpoint model{
      .values = {
          {"model/config.json", config},
          {"trainer/config", "model.config = \"m\"\ndata.path = \"d\"\n"}}};
  for (auto& [name, shape] :
       llama_parameters(LlamaConfig::from_json(config, "tiny"))) {
    model.parameters.push_back({name, shape});
  }
  testing::write_checkpoint(
      folder_.path() / "run" / "checkpoints" / step_folder_name(5), model);
  const CommandResult result = shell(
      "$accordion export run --to out --dtype bf16 --max-shard-bytes 1000000");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("run/checkpoints/step-00000005\n"));
  EXPECT_THAT(result.output, HasSubstr("out: 7 files, "));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_.path() / "out" /
                                            "config.json"))["torch_dtype"],
            "bfloat16");
  EXPECT_TRUE(
      fs::exists(folder_.path() / "out" / "model-00002-of-00002.safetensors"));
  const CommandResult again = shell("$accordion export run --to out");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.output, HasSubstr("exists already and is not empty"));
  const CommandResult dtype =
      shell("$accordion export run --to other --dtype int8");
  EXPECT_NE(dtype.exit_code, 0);
  EXPECT_THAT(dtype.output, HasSubstr("bf16"));
}

}  // namespace
}  // namespace accordion
