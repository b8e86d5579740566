// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/plan_question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/plan/question/plan_keys.h"
#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using testing::expect_message;
using ::testing::HasSubstr;

PlanRequest asked(const std::string& cluster,
                  std::vector<std::string> keys = {}) {
  return resolved(make_question(
      {.model = "llama-2-7b", .cluster = cluster, .keys = std::move(keys)}));
}

void expect_error(std::vector<std::string> keys,
                  std::initializer_list<const char*> parts) {
  expect_message([&] { (void)make_plan(asked("8xH100", std::move(keys))); },
                 parts);
}

TEST(PlanKeys, EveryKeyReadsWhatItPrints) {
  PlanSettings settings;
  for (const PlanKey& key : plan_keys()) {
    const std::string value = value_of(key, settings);
    set_key(std::string(key.name) + "=" + value, settings);
    EXPECT_EQ(value_of(key, settings), value) << key.name;
    for (const std::string_view choice : key.choices) {
      set_key(std::string(key.name) + "=" + std::string(choice), settings);
      EXPECT_EQ(value_of(key, settings), choice);
    }
  }
}

TEST(PlanKeys, HelpNamesEachWithTypeAndDefault) {
  const std::string help = plan_keys_help();
  EXPECT_THAT(help, HasSubstr("\nmicro_batch  (whole number; default 1)\n"));
  EXPECT_THAT(help,
              HasSubstr("checkpointing  (none | selective | full; default "));
  for (const PlanKey& key : plan_keys()) {
    EXPECT_THAT(help, HasSubstr("\n" + std::string(key.name) + "  ("));
  }
}

TEST(PlanKeys, MistakesNameTheNearest) {
  expect_error({"micro_bach=4"},
               {"Unknown key 'micro_bach'", "Did you mean 'micro_batch'?"});
  expect_error({"micro_batch"}, {"'micro_batch' is no KEY=VALUE"});
  expect_error({"micro_batch=four"}, {"micro_batch is 'four'", "a number"});
  expect_error({"micro_batch=1.6"}, {"micro_batch is 1.6", "nearest is 2"});
  expect_error({"micro_batch=-1"}, {"micro_batch is -1", "valid value is 1"});
  expect_error({"dp_shard=1e30"}, {"dp_shard is 1e30", "nearest is 214748"});
  expect_error({"checkpointing=ful"}, {"checkpointing is 'ful'", "'full'"});
  expect_error({"strategy=zero4"}, {"'zero4'", "nearest is 'zero"});
  expect_error({"stack=torchtit"}, {"'torchtit'", "'torchtitan'"});
  expect_error({"compiled=yes"}, {"compiled is 'yes'", "true or false"});
  expect_error({"kwh_price=-1"}, {"kwh_price is -1", "at least 0"});
}

TEST(PlanQuestion, MeshTakesTheGpusThatAreLeft) {
  EXPECT_EQ(asked("8xH100").strategy.dp_shard, 8);
  EXPECT_EQ(asked("16x8xH100", {"tensor=4"}).strategy.dp_shard, 32);
  EXPECT_EQ(asked("16x8xH100", {"dp_shard=8"}).strategy.dp_replicate, 16);
  EXPECT_EQ(asked("16x8xH100", {"dp_replicate=4"}).strategy.dp_shard, 32);
  for (const PlanRequest& request : {asked("16x8xH100", {"strategy=hybrid"}),
                                     asked("16x8xH100", {"strategy=HSDP"})}) {
    EXPECT_EQ(request.strategy.sharding, Sharding::FullShard);
    EXPECT_EQ(request.strategy.dp_shard, 8);
    EXPECT_EQ(request.strategy.dp_replicate, 16);
  }
}

TEST(PlanQuestion, MeshThatDoesNotDivideNamesWhatWould) {
  expect_error({"tensor=3"}, {"tensor 3", "8 GPUs", "valid product is"});
  expect_error({"dp_shard=3"},
               {"dp_shard 3", "8 GPUs", "nearest valid dp_shard is"});
}

TEST(PlanQuestion, BatchDecidesAccumulation) {
  // 8 ranks * 2 sequences * 2,048 tokens.
  EXPECT_EQ(asked("8xH100", {"micro_batch=2", "batch_tokens=131072"})
                .training.grad_accum,
            4);
  expect_error({"micro_batch=2", "batch_tokens=1e5"},
               {"batch_tokens is 100000", "nearest valid value is 98304"});
}

TEST(PlanQuestion, ProductsInFp32GatherFp32) {
  EXPECT_EQ(asked("8xH100").training.precision.gather_bytes, 2);
  EXPECT_EQ(asked("8xH100", {"compute=fp32"}).training.precision.gather_bytes,
            4);
  EXPECT_EQ(asked("8xH100", {"gather_bytes=2", "compute=fp32"})
                .training.precision.gather_bytes,
            2);
}

TEST(PlanQuestion, ModelIsAFileANameOrASize) {
  EXPECT_EQ(find_model("Llama 3 8B").vocab_size, 128256);
  EXPECT_EQ(find_model(ACCORDION_TEST_DATA "/parity/tiny.json").num_layers, 4);
  const PlanQuestion chosen = make_question({.params = 70e9});
  EXPECT_THAT(chosen.notes.front(), HasSubstr("nearest to 7e+10 parameters"));
  expect_message([] { (void)find_model("llama-3-9b"); },
                 {"'llama-3-9b'", "nearest is 'llama-3-8b'"});
  expect_message([] { (void)make_question({}); }, {"Name one model"});
  expect_message(
      [] { (void)make_question({.model = "llama-3-8b", .params = 1e9}); },
      {"Name one model"});
}

TEST(PlanQuestion, KeysWinOverFiles) {
  PlanQuestion question = make_question({.model = "llama-2-7b"});
  state_key("micro_batch=4", question);
  EXPECT_TRUE(is_stated("micro_batch", question));
  EXPECT_FALSE(is_stated("seq_len", question));
}

}  // namespace
}  // namespace accordion::plan
