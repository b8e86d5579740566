// SPDX-License-Identifier: BSD-3-Clause
//
// accordion inspect and accordion diff, as a user's shell runs them.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/weight_files.h"
#include "tests/checkpoint/written_checkpoint.h"
#include "tests/cli/command_shell.h"

namespace accordion::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointCommands : public CommandShell {
 protected:
  CheckpointCommands() {
    write_three_ranks(folder_.path() / "run/checkpoints/step-00000007");
    write_three_ranks(folder_.path() / "other", 0.5F);
    const std::vector<float> w = counting(10);
    const TensorData tensors[] = {tensor_data("w", "F32", {5, 2}, w)};
    write_safetensors(folder_.path() / "w.safetensors", tensors);
  }
};

TEST_F(CheckpointCommands, InspectShowsTheNewestCheckpointOfARun) {
  const CommandResult all = shell("$accordion inspect run");
  ASSERT_EQ(all.exit_code, 0) << all.output;
  EXPECT_THAT(all.output, HasSubstr("run/checkpoints/step-00000007  (the "
                                    "newest of 1 complete checkpoint)"));
  EXPECT_THAT(all.output, HasSubstr("every block has its checksum"));
  EXPECT_THAT(all.output, HasSubstr("optimizer/m/w"));
  EXPECT_THAT(all.output, Not(HasSubstr("a = 1")));
  EXPECT_THAT(shell("$accordion inspect run --values").output,
              HasSubstr("a = 1"));
  EXPECT_THAT(shell("$accordion inspect run --no-verify").output,
              HasSubstr("verified    no\n"));
}

TEST_F(CheckpointCommands, InspectShowsOneTensorOverRanks) {
  const CommandResult odd = shell("$accordion inspect run --tensor model/odd");
  ASSERT_EQ(odd.exit_code, 0) << odd.output;
  EXPECT_THAT(odd.output, HasSubstr("]  [0, 4)   66.7 %\n"));
  EXPECT_THAT(odd.output, HasSubstr("]  empty     0.0 %\n"));
  const CommandResult no = shell("$accordion inspect run --tensor model/no");
  EXPECT_EQ(no.exit_code, 1);
  EXPECT_THAT(no.output, HasSubstr("holds no tensor 'model/no'"));
}

TEST_F(CheckpointCommands, InspectPrintsJson) {
  const CommandResult result =
      shell("$accordion inspect w.safetensors --stats --json");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["kind"], "weights");
  EXPECT_EQ(json["tensors"][0]["statistics"]["max"], 9.0);
}

TEST_F(CheckpointCommands, InspectEndsWithOneErrorForDamage) {
  const auto file = folder_.path() / "other/shard-00001-of-00003.safetensors";
  damage(file, static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1);
  const CommandResult result = shell("$accordion inspect other");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("accordion: [checkpoint] "));
  EXPECT_THAT(result.output, HasSubstr("shard-00001-of-00003.safetensors"));
  EXPECT_THAT(result.output, Not(HasSubstr("world size")));
}

TEST_F(CheckpointCommands, DiffReturnsWhetherThereIsADifference) {
  const CommandResult same = shell("$accordion diff run w.safetensors");
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.output, HasSubstr("only in a: 2\n  bias\n  odd\n"));
  EXPECT_EQ(shell("$accordion diff run run/checkpoints").exit_code, 0);
  const CommandResult other = shell("$accordion diff run other");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, HasSubstr("model/w"));
  EXPECT_THAT(other.output, Not(HasSubstr("model/odd")));
  EXPECT_THAT(shell("$accordion diff run other --all").output,
              HasSubstr("model/odd"));
  EXPECT_EQ(shell("$accordion diff run other --tolerance 0.5").exit_code, 0);
  EXPECT_EQ(shell("$accordion diff run other --tolerance 0.4").exit_code, 1);
}

TEST_F(CheckpointCommands, DiffReturnsTwoForAnError) {
  const CommandResult missing = shell("$accordion diff run missing");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, HasSubstr("there is nothing at 'missing'"));
}

}  // namespace
}  // namespace accordion::testing
