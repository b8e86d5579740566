// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/known_models.h"
#include "accordion/plan/question/accelerate_config.h"
#include "accordion/plan/question/deepspeed_config.h"
#include "accordion/plan/question/flat_yaml.h"
#include "accordion/plan/question/plan_question.h"
#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using ::testing::Contains;
using testing::expect_message;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

LauncherConfig deepspeed(const std::string& text, int gpus = 8) {
  return deepspeed_config(text, "ds.json", *known_model("llama-2-7b"), gpus);
}

LauncherConfig accelerate(const std::string& text) {
  return accelerate_config(text, "settings");
}

TEST(DeepSpeedConfig, StageTypesAndOffload) {
  const LauncherConfig config = deepspeed(R"({
    "bf16": {"enabled": true},
    "zero_optimization": {
      "stage": 3,
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "nvme"},
      "stage3_prefetch_bucket_size": 5e8,
      "zero_hpz_partition_size": 8
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "gradient_clipping": 1.0})");
  EXPECT_THAT(
      config.keys,
      IsSupersetOf({"stack=deepspeed", "compute=bf16", "parameter_bytes=2",
                    "master_copy=true", "reduce_bytes=2", "strategy=full_shard",
                    "offload.optimizer=host", "offload.parameters=disk",
                    "secondary_shard=8", "optimizer=adamw"}));
  // A layer of Llama 2 7B has 202 million parameters.
  EXPECT_THAT(config.keys, Contains("prefetch=2"));
  EXPECT_THAT(config.notes, Contains(HasSubstr("2.47 of a layer")));
  EXPECT_THAT(config.notes,
              Contains(AllOf(HasSubstr("have no meaning"),
                             HasSubstr("gradient_clipping"),
                             HasSubstr("optimizer.params.lr"),
                             HasSubstr("offload_optimizer.pin_memory"))));
}

TEST(DeepSpeedConfig, StagesAreItsOwnAccounting) {
  const auto strategy = [](int stage) {
    return deepspeed("{\"zero_optimization\": {\"stage\": " +
                     std::to_string(stage) + "}}")
        .keys;
  };
  EXPECT_THAT(strategy(0), Contains("strategy=no_shard"));
  EXPECT_THAT(strategy(1), Contains("strategy=shard_optimizer"));
  EXPECT_THAT(strategy(2), Contains("strategy=deepspeed_zero2"));
  EXPECT_THAT(strategy(3), Contains("strategy=full_shard"));
  EXPECT_THAT(strategy(3), Contains("compute=fp32"));
  expect_message([&] { (void)strategy(4); },
                 {"zero_optimization.stage' is 4", "nearest is 3"});
}

TEST(DeepSpeedConfig, TwoBatchSizesGiveTheThird) {
  EXPECT_THAT(deepspeed(R"({"train_batch_size": 256,
                            "train_micro_batch_size_per_gpu": 4})")
                  .keys,
              IsSupersetOf({"micro_batch=4", "grad_accum=8"}));
  EXPECT_THAT(deepspeed(R"({"train_batch_size": 256,
                            "gradient_accumulation_steps": 2})")
                  .keys,
              IsSupersetOf({"micro_batch=16", "grad_accum=2"}));
  expect_message(
      [] {
        deepspeed(R"({"train_batch_size": 100,
                      "train_micro_batch_size_per_gpu": 4})");
      },
      {"'train_batch_size' is 100", "nearest valid value is 96"});
}

TEST(DeepSpeedConfig, AutoKeepsDefaultsAndSaysSo) {
  const LauncherConfig config = deepspeed(
      R"({"train_micro_batch_size_per_gpu": "auto",
          "bf16": {"enabled": "auto"}})");
  EXPECT_THAT(config.keys, Not(Contains(HasSubstr("micro_batch"))));
  EXPECT_THAT(config.notes,
              Contains(AllOf(HasSubstr("\"auto\""),
                             HasSubstr("train_micro_batch_size_per_gpu"))));
}

TEST(DeepSpeedConfig, MistakesNameTheKey) {
  expect_message([] { deepspeed("{"); }, {"ds.json", "not JSON"});
  expect_message([] { deepspeed("[]"); }, {"ds.json", "must be an object"});
  expect_message([] { deepspeed(R"({"bf16": {"enabled": "yes"}})"); },
                 {"'bf16.enabled' is \"yes\"", "true or false"});
  expect_message(
      [] {
        deepspeed(R"({"zero_optimization":
                      {"offload_param": {"device": "cpux"}}})");
      },
      {"offload_param.device' is 'cpux'", "nearest is 'cpu'"});
  expect_message(
      [] {
        deepspeed(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})");
      },
      {"both true"});
}

TEST(AccelerateConfig, YamlOfItsQuestionnaire) {
  const LauncherConfig config = accelerate(R"(
compute_environment: LOCAL_MACHINE  # a comment
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: NO_PREFETCH
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16
num_processes: 8
)");
  EXPECT_THAT(config.keys,
              IsSupersetOf({"compute=bf16", "gather_bytes=2", "reduce_bytes=2",
                            "strategy=full_shard", "stack=torchtitan",
                            "prefetch=0", "checkpointing=full"}));
  EXPECT_THAT(config.notes,
              Contains(AllOf(HasSubstr("fsdp_config.fsdp_auto_wrap_policy"),
                             HasSubstr("compute_environment"))));
  EXPECT_THAT(config.notes, Not(Contains(HasSubstr("mixed_precision"))));
}

TEST(AccelerateConfig, StrategiesByNameAndNumber) {
  const auto keys = [](const std::string& value) {
    return accelerate("fsdp_config:\n  fsdp_sharding_strategy: " + value).keys;
  };
  EXPECT_THAT(keys("FULL_SHARD"), Contains("strategy=full_shard"));
  EXPECT_THAT(keys("2"), Contains("strategy=shard_grad_op"));
  EXPECT_THAT(keys("HYBRID_SHARD"), Contains("strategy=hybrid"));
  EXPECT_THAT(keys("NO_SHARD"), Contains("stack=fms-fsdp"));
  expect_message([&] { (void)keys("FULL_SHRD"); },
                 {"'FULL_SHRD'", "nearest is 'full_shard'"});
  expect_message([&] { (void)keys("6"); }, {"is 6", "nearest is 5"});
}

TEST(AccelerateConfig, ArgumentsOfTheTrainer) {
  const LauncherConfig config = accelerate(R"({
    "fsdp": "full_shard auto_wrap offload",
    "fsdp_config": {"backward_prefetch": "backward_pre"},
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
    "bf16": true, "gradient_checkpointing": true, "optim": "adamw_bnb_8bit",
    "learning_rate": 1e-5})");
  EXPECT_THAT(config.keys,
              IsSupersetOf({"strategy=full_shard", "offload.parameters=host",
                            "offload.optimizer=host", "micro_batch=2",
                            "grad_accum=4", "compute=bf16",
                            "checkpointing=full", "optimizer=adamw_8bit"}));
  EXPECT_THAT(config.notes, Contains(HasSubstr("learning_rate")));
}

TEST(AccelerateConfig, BytesThatAreNoTextAreShownAsSuch) {
  expect_message(
      [] { accelerate("fsdp_config:\n  fsdp_version: a\x8fz\n"); },
      {"fsdp_config.fsdp_version' is \"a\xEF\xBF\xBDz\"", "whole number"});
}

TEST(FlatYaml, ReadsMapsScalarsAndLists) {
  const nlohmann::json value = parse_flat_yaml(
      "a: 1\nb:\n  c: 'x: # y'\n  d:\n    e: null\n  f: {}\ng:\n- p\n- 2\n"
      "h: no\n",
      "file");
  EXPECT_EQ(value, nlohmann::json::parse(
                       R"({"a": 1, "b": {"c": "x: # y", "d": {"e": null},
                           "f": {}}, "g": ["p", 2], "h": "no"})"));
  expect_message([] { parse_flat_yaml("a: 1\n   b: 2\n", "file"); },
                 {"file:2", "indentation"});
  expect_message([] { parse_flat_yaml("a\n", "file"); },
                 {"file:1", "key: value"});
  expect_message([] { parse_flat_yaml("- a\n", "file"); },
                 {"file:1", "behind its key"});
}

TEST(LauncherFile, KeysOfTheCommandLineWin) {
  const auto path =
      std::filesystem::temp_directory_path() / "accordion_plan_ds.json";
  std::ofstream(path) << R"({"train_micro_batch_size_per_gpu": 4,
                             "zero_optimization": {"stage": 2}})";
  const PlanQuestion question = make_question({.model = "llama-2-7b",
                                               .deepspeed = path.string(),
                                               .keys = {"micro_batch=2"}});
  std::filesystem::remove(path);
  EXPECT_EQ(question.settings.training.micro_batch, 2);
  EXPECT_EQ(question.settings.strategy.sharding, Sharding::DeepSpeedZero2);
  EXPECT_THROW(
      make_question({.model = "llama-2-7b", .deepspeed = "missing.json"}),
      std::runtime_error);
}

}  // namespace
}  // namespace accordion::plan
