// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/train_config.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/plan/nearest_name.h"
#include "accordion/train/config_keys.h"
#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TemporaryFolder;

constexpr std::string_view kMinimal =
    "data.path = \"text.txt\"\n"
    "model.config = \"model.json\"\n";

TrainConfig parse(std::string_view more,
                  const std::vector<std::string>& overrides = {}) {
  return parse_config(std::string(kMinimal) + std::string(more),
                      "/etc/run/demo.toml", overrides);
}

std::string error_of(std::string_view more,
                     const std::vector<std::string>& overrides = {}) {
  return message_of([&] { parse(more, overrides); });
}

TEST(TrainConfig, ReadsEveryTypeOfValue) {
  const TrainConfig config = parse(
      "[train]\nsteps = 7\nseconds = 2\n"
      "[optimizer]\nbetas = [0.5, 0.75]\nlr = 1e-2\ndecay_norms = true\n"
      "[fsdp]\nstrategy = \"no_shard\"\nreshard_after_forward = false\n");
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.seconds, 2.0);
  EXPECT_EQ(config.optimizer.betas[1], 0.75);
  EXPECT_EQ(config.optimizer.lr, 0.01);
  EXPECT_TRUE(config.optimizer.decay_norms);
  EXPECT_EQ(config.fsdp.strategy, "no_shard");
  EXPECT_EQ(config.fsdp.reshard_after_forward, false);
}

TEST(TrainConfig, OverridesWinAndTextNeedsNoQuotes) {
  const TrainConfig config =
      parse("train.steps = 7\n",
            {"train.steps=9", "data.order=strided", "sample.prompt=In the = 1",
             "optimizer.betas=[0.1, 0.2]", "model.init=\"/a b\""});
  EXPECT_EQ(config.train.steps, 9);
  EXPECT_EQ(config.data.order, "strided");
  EXPECT_EQ(config.sample.prompt, "In the = 1");
  EXPECT_EQ(config.optimizer.betas[0], 0.1);
  EXPECT_EQ(config.model.init, "/a b");
}

TEST(TrainConfig, RelativePathsStartAtTheFileOrTheWorkingFolder) {
  const TrainConfig config = parse("", {"model.config=other.json"});
  EXPECT_THAT(config.data.path, ElementsAre("/etc/run/text.txt"));
  EXPECT_EQ(config.model.config,
            std::filesystem::current_path() / "other.json");
}

// toml++ takes what follows the bracket for a key without looking at it.
TEST(TrainConfig, ABracketWithoutANameIsNoToml) {
  for (const char* text : {"[\na]\n", "[[[a]]]\n", "[[=", "[=]", "[", "[["}) {
    EXPECT_THAT(error_of(text), HasSubstr("this is no TOML")) << text;
  }
}

// A shell passes on what it was given; the file of a run could not hold it.
TEST(TrainConfig, TextIsInUtf8) {
  EXPECT_EQ(parse("", {"sample.prompt=caf\xc3\xa9"}).sample.prompt,
            "caf\xc3\xa9");
  for (const char* text : {"sample.prompt=caf\xe9", "run.dir=caf\xe9"}) {
    EXPECT_THAT(error_of("", {text}), HasSubstr("is no text in UTF-8"));
  }
}

TEST(TrainConfig, PrintedFileReadsBackTheSame) {
  const TrainConfig config =
      parse("", {"optimizer.eps=1e-8", "optimizer.lr=0.00031",
                 "train.seconds=3", "sample.prompt=a \"quoted\"\tword",
                 "fsdp.reshard_after_forward=true"});
  const std::string text = to_toml(config);
  const TrainConfig again = parse_config(text, "/elsewhere/config.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.optimizer.eps, 1e-8);
  EXPECT_EQ(again.optimizer.lr, 0.00031);
  EXPECT_EQ(again.sample.prompt, "a \"quoted\"\tword");
  EXPECT_EQ(again.fsdp.reshard_after_forward, true);
  EXPECT_THAT(again.data.path, ElementsAre("/etc/run/text.txt"));
}

TEST(TrainConfig, PrintedFileAndHelpHoldEveryKey) {
  const std::string text = to_toml(TrainConfig());
  const std::string help = config_help();
  for (const ConfigKey& key : config_keys()) {
    const auto leaf = key.name.substr(key.name.find('.') + 1);
    EXPECT_THAT(text, HasSubstr(leaf));
    EXPECT_THAT(help, HasSubstr(fmt::format("\n{}  (", key.name)));
  }
}

TEST(TrainConfig, HelpShowsTypeDefaultAndChoices) {
  const std::string help = config_help();
  EXPECT_THAT(help, HasSubstr("fsdp.strategy  (full_shard | shard_grad_op | "
                              "shard_optimizer | no_shard | hybrid; default "
                              "\"full_shard\")"));
  EXPECT_THAT(help, HasSubstr("train.steps  (integer at least 0; "
                              "default 1000)"));
  EXPECT_THAT(help, HasSubstr("optimizer.lr  (number greater than 0; "
                              "default 0.0003)"));
}

TEST(TrainConfig, DefaultsLieInTheirRanges) {
  TrainConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    const ConfigField field = key.field(defaults);
    if (const auto* integer = std::get_if<std::int64_t*>(&field)) {
      EXPECT_TRUE(key.range.contains(static_cast<double>(**integer)))
          << key.name;
    } else if (const auto* number = std::get_if<double*>(&field)) {
      EXPECT_TRUE(key.range.contains(**number)) << key.name;
    } else if (const auto* text = std::get_if<std::string*>(&field);
               text && !key.choices.empty()) {
      EXPECT_THAT(key.choices, ::testing::Contains(**text)) << key.name;
    }
  }
}

TEST(TrainConfig, UnknownKeyNamesFileLineAndNearestKey) {
  const std::string message = error_of("[train]\nsteps = 1\nbatchsize = 2\n");
  EXPECT_THAT(message, HasSubstr("/etc/run/demo.toml:5"));
  EXPECT_THAT(message, HasSubstr("unknown key 'train.batchsize'"));
  EXPECT_THAT(message, HasSubstr("Did you mean 'train.batch_size'?"));
}

TEST(TrainConfig, UnknownSectionAndNestedKeyAreErrors) {
  EXPECT_THAT(error_of("[optimiser]\nlr = 1.0\n"),
              HasSubstr("Did you mean 'optimizer.lr'?"));
  EXPECT_THAT(error_of("[train.steps]\nmore = 1\n"),
              HasSubstr("'train.steps' wants an integer"));
  EXPECT_THAT(error_of("[train.extra]\n"),
              HasSubstr("unknown key 'train.extra'"));
}

TEST(TrainConfig, UnknownKeyOnTheCommandLineIsAnError) {
  const std::string message = error_of("", {"fsdp.prefetsh=2"});
  EXPECT_THAT(message, HasSubstr("command line"));
  EXPECT_THAT(message, HasSubstr("Did you mean 'fsdp.prefetch'?"));
  EXPECT_THAT(error_of("", {"train.steps"}), HasSubstr("is no KEY=VALUE"));
}

TEST(TrainConfig, ValueOfTheWrongTypeNamesBothTypes) {
  EXPECT_THAT(error_of("train.steps = \"ten\"\n"),
              HasSubstr("'train.steps' wants an integer, got "));
  EXPECT_THAT(error_of("train.steps = 1.5\n"), HasSubstr("demo.toml:3"));
  EXPECT_THAT(error_of("optimizer.lr = true\n"), HasSubstr("wants a number"));
  EXPECT_THAT(error_of("optimizer.betas = [0.9]\n"),
              HasSubstr("two numbers in brackets"));
  EXPECT_THAT(error_of("optimizer.decay_norms = 1\n"),
              HasSubstr("wants true or false"));
  EXPECT_THAT(error_of("data.order = 3\n"), HasSubstr("wants text"));
  EXPECT_THAT(error_of("data.order = [0.1, 0.2]\n"),
              HasSubstr("wants text, got a list."));
  EXPECT_THAT(error_of("data.order = {a = 1}\n"),
              HasSubstr("wants text, got a table."));
  EXPECT_THAT(error_of("", {"train.steps=ten"}),
              HasSubstr("'train.steps' wants integer, got 'ten'"));
}

TEST(TrainConfig, IntegerWhereANumberIsWantedMayBeLarge) {
  EXPECT_EQ(parse("train.seconds = 9007199254740993\n").train.seconds,
            9007199254740992.0);
  EXPECT_THAT(error_of("optimizer.betas = [9007199254740993, 0.5]\n"),
              HasSubstr("'optimizer.betas' is 9007199254740992"));
}

TEST(TrainConfig, ValueOutOfRangeSaysTheRange) {
  EXPECT_THAT(error_of("train.batch_size = 0\n"),
              HasSubstr("'train.batch_size' is 0; it must be at least 1."));
  EXPECT_THAT(error_of("data.validation_fraction = 1.0\n"),
              HasSubstr("at least 0 and less than 1"));
  EXPECT_THAT(error_of("optimizer.lr = 0\n"),
              HasSubstr("'optimizer.lr' is 0; it must be greater than 0."));
  EXPECT_THAT(error_of("optimizer.lr = nan\n"),
              HasSubstr("must be greater than 0"));
  EXPECT_THAT(error_of("optimizer.betas = [0.9, 1.0]\n"),
              HasSubstr("'optimizer.betas' is 1"));
}

TEST(TrainConfig, ChoiceThatDoesNotExistListsTheValidOnes) {
  EXPECT_THAT(error_of("fsdp.strategy = \"zero3\"\n"),
              HasSubstr("valid values: \"full_shard\", \"shard_grad_op\", "
                        "\"shard_optimizer\", \"no_shard\", \"hybrid\""));
  const std::string message = error_of("schedule.name = \"cosin\"\n");
  EXPECT_THAT(message, HasSubstr("valid values: \"constant\", \"cosine\", "
                                 "\"linear\", \"wsd\""));
  EXPECT_THAT(message, HasSubstr("Did you mean \"cosine\"?"));
}

TEST(TrainConfig, DataPathIsOneTextOrAList) {
  const std::string model = "model.config = \"model.json\"\n";
  const auto paths = [&](const std::string& value,
                         const std::vector<std::string>& overrides = {}) {
    return parse_config(model + "data.path = " + value, "/etc/run/demo.toml",
                        overrides)
        .data.path;
  };
  EXPECT_THAT(paths("[\"a.bin\", \"/b/*.bin\"]"),
              ElementsAre("/etc/run/a.bin", "/b/*.bin"));
  EXPECT_THAT(paths("\"a.txt\"", {"data.path=/b.txt"}), ElementsAre("/b.txt"));
  EXPECT_THAT(paths("\"a.txt\"", {"data.path=['/b.txt', \"/c.txt\"]"}),
              ElementsAre("/b.txt", "/c.txt"));
  EXPECT_THAT(message_of([&] { paths("[1]"); }),
              HasSubstr("'data.path' wants text, or a list of texts"));
  EXPECT_THAT(message_of([&] { paths("[]"); }),
              HasSubstr("got an empty list."));
}

TEST(TrainConfig, TextReadsBackTheSame) {
  TrainConfig config = parse("");
  config.data.path = {"/a \"b\".txt", "/c\\\x7f.txt"};
  for (int code = 1; code < 0x80; ++code) {
    config.sample.prompt += static_cast<char>(code);
  }
  config.sample.prompt += "\u00e9\U0001f600";
  const TrainConfig again = parse_config(to_toml(config), "/x.toml");
  EXPECT_EQ(again.data.path, config.data.path);
  EXPECT_EQ(again.sample.prompt, config.sample.prompt);
}

TEST(TrainConfig, CheckpointedLayersAreAWordOrANumber) {
  EXPECT_EQ(checkpointed_every("none"), 0);
  EXPECT_EQ(checkpointed_every("selective"), 0);
  EXPECT_EQ(checkpointed_every("auto"), 0);
  EXPECT_EQ(checkpointed_every("full"), 1);
  EXPECT_EQ(checkpointed_every("3"), 3);
  for (const char* wrong :
       {"", "0", "-2", "2.5", "some", "99999999999999999999"}) {
    EXPECT_FALSE(checkpointed_every(wrong)) << wrong;
  }
  EXPECT_THAT(error_of("", {"memory.activation_checkpointing=most"}),
              HasSubstr("'memory.activation_checkpointing' is \"most\""));
  EXPECT_THAT(error_of("", {"memory.activation_checkpointing=auto"}),
              HasSubstr("chosen by memory.limit, but there is none"));
}

TEST(TrainConfig, OffloadNeedsADiskAndCheckpointsWithoutACopy) {
  const std::string on = "memory.offload=optimizer";
  const std::string sync = "checkpoint.async=false";
  EXPECT_NO_THROW(parse("", {on, sync}));
  EXPECT_NO_THROW(parse("", {on, "checkpoint.every=0"}));
  EXPECT_EQ(parse("memory.offload = \"optimizer\"\n"
                  "memory.offload_to = \"scratch\"\n",
                  {sync})
                .memory.offload_to,
            "/etc/run/scratch");
  EXPECT_THAT(error_of("", {on}), HasSubstr("Set checkpoint.async = false"));
  EXPECT_THAT(error_of("", {on, sync, "memory.offload_to=host"}),
              HasSubstr("this run is on the CPU"));
  EXPECT_THAT(error_of("", {"memory.offload_to=host"}),
              HasSubstr("belongs to memory.offload"));
  EXPECT_THAT(error_of("", {"memory.offload=gradients"}),
              HasSubstr("Set checkpoint.async = false"));
  EXPECT_NO_THROW(parse("", {"memory.offload=parameters", sync,
                             "memory.optimizer_in_backward=true"}));
  EXPECT_THAT(error_of("", {"memory.offload=gradients", sync,
                            "memory.optimizer_in_backward=true"}),
              HasSubstr("none is left to offload"));
  EXPECT_THAT(error_of("", {"memory.offload=everything"}),
              HasSubstr("memory.offload"));
}

TEST(TrainConfig, OffloadedActivationsAreInputsOfLayersThatKeepNothingElse) {
  const std::string on = "memory.offload_activations=true";
  EXPECT_NO_THROW(parse("", {on, "memory.activation_checkpointing=full",
                             "memory.offload_to=/scratch"}));
  EXPECT_NO_THROW(parse("", {on, "memory.activation_checkpointing=3"}));
  for (const char* layers : {"none", "selective"}) {
    EXPECT_THAT(error_of("", {on, std::string("memory.activation_"
                                              "checkpointing=") +
                                      layers}),
                HasSubstr("'memory.offload_activations' moves the inputs"));
  }
}

TEST(TrainConfig, StepsInBackwardRefuseWhatNeedsAllGradients) {
  const std::string on = "memory.optimizer_in_backward=true";
  EXPECT_NO_THROW(parse("", {on, "optimizer.clip_in_backward=unit_norm"}));
  EXPECT_THAT(error_of("", {on, "train.grad_accumulation=2"}),
              HasSubstr("'train.grad_accumulation' is 2"));
  EXPECT_THAT(error_of("", {on, "fsdp.param_dtype=fp16"}),
              HasSubstr("looks at the gradients of a whole step"));
  EXPECT_THAT(error_of("", {on, "train.spike=skip"}),
              HasSubstr("Use \"rollback\""));
  EXPECT_THAT(error_of("", {"optimizer.clip_in_backward=unit_norm"}),
              HasSubstr("belongs to memory.optimizer_in_backward"));
}

TEST(TrainConfig, MemoryLimitIsAnAmountWithItsUnit) {
  EXPECT_EQ(bytes_of_limit(""), 0);
  EXPECT_EQ(bytes_of_limit("8GiB"), std::int64_t{8} << 30);
  EXPECT_EQ(bytes_of_limit("1.5 GiB"), std::int64_t{3} << 29);
  EXPECT_EQ(bytes_of_limit("800"), std::int64_t{800} << 20);
  EXPECT_EQ(bytes_of_limit("64KiB"), 65536);
  for (const char* wrong : {"0", "-1GiB", "lots", "8GB", "8 GiB ", "GiB", "nan",
                            "inf", "1e30TiB"}) {
    EXPECT_FALSE(bytes_of_limit(wrong)) << wrong;
  }
  EXPECT_THAT(error_of("", {"memory.limit=8GB"}),
              HasSubstr("'memory.limit' is \"8GB\", which is no amount of "
                        "memory; valid values: \"8GiB\""));
  EXPECT_EQ(parse("memory.limit = \"2GiB\"\n").memory.limit, "2GiB");
}

TEST(TrainConfig, ADeviceRefusesWhatIsOfTheHost) {
  EXPECT_EQ(parse("train.device = \"cuda\"\n").train.device, "cuda");
  const auto with = [](const std::string& key) {
    return error_of("", {"train.device=cuda", key});
  };
  EXPECT_THAT(with("fsdp.backend=gloo"), HasSubstr("Leave it \"auto\""));
  EXPECT_THAT(with("memory.limit=8GiB"), HasSubstr("memory of the host"));
  EXPECT_THAT(with("optimizer.moments_dtype=bf16"),
              HasSubstr("where moments are stored as parameters are"));
  const auto offloading = [](const std::string& what, const std::string& to,
                             const std::string& key) {
    return std::vector<std::string>{
        "train.device=cuda", "memory.offload=" + what,
        "memory.offload_to=" + to, "checkpoint.async=false", key};
  };
  EXPECT_THAT(error_of("", offloading("optimizer", "host", "run.seed=1")),
              HasSubstr("moves parameters, gradients and moments together"));
  EXPECT_THAT(error_of("", offloading("parameters", "nvme", "run.seed=1")),
              HasSubstr("it is \"parameters\", to \"nvme\""));
  EXPECT_THAT(error_of("", offloading("parameters", "host",
                                      "memory.optimizer_in_backward=true")),
              HasSubstr("has their parameters on the host"));
  EXPECT_THAT(error_of("", {"train.device=tpu"}), HasSubstr("\"cuda\""));
}

TEST(TrainConfig, ChangesAreTheKeysWhoseValuesDiffer) {
  const TrainConfig before = parse("");
  EXPECT_THAT(config_changes(before, parse("")), IsEmpty());
  EXPECT_THAT(
      config_changes(before, parse("optimizer.lr = 0.5\n"
                                   "fsdp.reshard_after_forward = true\n")),
      ElementsAre("optimizer.lr = 0.5, was 0.0003",
                  "fsdp.reshard_after_forward = true, was unset"));
}

TEST(TrainConfig, TokenizerIsAWordOrAPath) {
  EXPECT_EQ(parse("").data.tokenizer, "bytes");
  EXPECT_EQ(parse("data.tokenizer = \"bytes\"\n").data.tokenizer, "bytes");
  EXPECT_EQ(parse("data.tokenizer = \"a.model\"\n").data.tokenizer,
            "/etc/run/a.model");
}

TEST(TrainConfig, EpochsStandInForSteps) {
  const TrainConfig config = parse("train.epochs = 2\n");
  EXPECT_EQ(config.train.steps, 0);
  EXPECT_EQ(config.train.epochs, 2);
  EXPECT_EQ(parse("").train.steps, TrainConfig().train.steps);
  EXPECT_EQ(parse_config(to_toml(config), "/x.toml").train.steps, 0);
  EXPECT_THAT(error_of("train.epochs = 2\ntrain.steps = 5\n"),
              HasSubstr("only one can say how long the run is"));
}

TEST(TrainConfig, DecayOfWsdMustFitTheRun) {
  EXPECT_THAT(error_of("schedule.decay_steps = 3\n"),
              HasSubstr("belong to schedule.name = \"wsd\""));
  EXPECT_THAT(error_of("schedule.decay_shape = \"1-sqrt\"\n"),
              HasSubstr("belong to schedule.name = \"wsd\""));
  const std::string wsd = "schedule.name = \"wsd\"\nschedule.decay_steps = 6\n";
  EXPECT_THAT(error_of(wsd + "train.steps = 10\nschedule.warmup_steps = 5\n"),
              HasSubstr("(5) and 'schedule.decay_steps' (6) are more than"));
  EXPECT_THAT(error_of(wsd + "train.steps = 0\ntrain.seconds = 5\n"),
              HasSubstr("counts from the last step"));
  EXPECT_EQ(parse(wsd + "train.steps = 11\nschedule.warmup_steps = 5\n")
                .schedule.decay_steps,
            6);
}

TEST(TrainConfig, KeysThatContradictEachOtherAreErrors) {
  EXPECT_THAT(error_of("train.steps = 0\n"), HasSubstr("would not end"));
  EXPECT_THAT(error_of("train.steps = 5\nschedule.warmup_steps = 6\n"),
              HasSubstr("more than 'train.steps' (5)"));
  EXPECT_THAT(error_of("eval.every = 5\ndata.order = \"strided\"\n"),
              HasSubstr("holds nothing out"));
  EXPECT_THAT(error_of("eval.every = 5\ndata.validation_fraction = 0\n"),
              HasSubstr("nothing is held out"));
}

TEST(TrainConfig, ShardingKeysThatContradictEachOtherAreErrors) {
  EXPECT_THAT(error_of("[fsdp]\nreshard_to_ranks = 2\n"
                       "strategy = \"shard_grad_op\"\n"),
              HasSubstr("'fsdp.reshard_to_ranks' is 2, but fsdp.strategy = "
                        "\"shard_grad_op\" keeps"));
  EXPECT_THAT(error_of("[fsdp]\nreshard_to_ranks = 2\n"
                       "reshard_after_forward = false\n"),
              HasSubstr("'fsdp.reshard_after_forward' is false"));
  EXPECT_THAT(error_of("[fsdp]\nreplicas = 2\nstrategy = \"no_shard\"\n"),
              HasSubstr("makes every rank a replica"));
  const std::string deferred =
      "[fsdp]\naccumulation = \"deferred_all_reduce\"\n";
  EXPECT_THAT(error_of(deferred), HasSubstr("nothing to put off"));
  EXPECT_THAT(error_of(deferred + "strategy = \"hybrid\"\nreplicas = 1\n"),
              HasSubstr("nothing to put off"));
  EXPECT_EQ(parse(deferred + "strategy = \"hybrid\"\n").fsdp.replicas, 0);
  EXPECT_EQ(parse(deferred + "replicas = 2\n").fsdp.replicas, 2);
}

TEST(TrainConfig, StochasticRoundingNeedsSomethingInBf16) {
  EXPECT_TRUE(parse("", {"optimizer.moments_dtype=bf16",
                         "optimizer.stochastic_rounding=true"})
                  .optimizer.stochastic_rounding);
  EXPECT_THAT(error_of("optimizer.stochastic_rounding = true\n"),
              HasSubstr("nothing that the optimizer stores is bf16: "
                        "'optimizer.moments_dtype' is \"fp32\""));
}

TEST(TrainConfig, LossScaleThatContradictsOtherKeysIsAnError) {
  const std::string fp16 = "[fsdp]\nparam_dtype = \"fp16\"\n";
  EXPECT_EQ(parse(fp16 + "reduce_dtype = \"fp16\"\n").fsdp.reduce_dtype,
            "fp16");
  EXPECT_THAT(error_of("[fsdp]\nreduce_dtype = \"fp16\"\n"),
              HasSubstr("'fsdp.reduce_dtype' is \"fp16\", where gradients"));
  for (const char* key : {"loss_scale = 1024.0", "loss_scale_interval = 5"}) {
    const std::string text = std::string("[optimizer]\n") + key + "\n";
    EXPECT_NO_THROW(parse(text + fp16));
    EXPECT_THAT(error_of(text + "[fsdp]\nparam_dtype = \"bf16\"\n"),
                HasSubstr("belong to fsdp.param_dtype = \"fp16\", but that is "
                          "\"bf16\""));
  }
  EXPECT_THAT(error_of("[optimizer]\nloss_scale = 1000.0\n" + fp16),
              HasSubstr("is 1000, which is no power of two, so that gradients "
                        "would be rounded. Use 512 or 1024"));
}

TEST(TrainConfig, MissingTextOrModelIsAnError) {
  EXPECT_THAT(message_of([] { parse_config("", "a.toml"); }),
              HasSubstr("'data.path' is not set"));
  EXPECT_THAT(message_of([] { parse_config("data.path = \"x\"\n", "a.toml"); }),
              HasSubstr("'model.config' is not set"));
}

TEST(TrainConfig, FileThatIsNoTomlNamesTheLine) {
  const std::string message = error_of("steps = = 3\n");
  EXPECT_THAT(message, HasSubstr("demo.toml:3: this is no TOML"));
}

TEST(TrainConfig, FileThatIsMissingIsAnError) {
  EXPECT_THAT(message_of([] { load_config("/nowhere/a.toml"); }),
              HasSubstr("Cannot read '/nowhere/a.toml'"));
  const TemporaryFolder folder;
  EXPECT_EQ(load_config(folder.write("a.toml", kMinimal)).data.path.at(0),
            folder.path() / "text.txt");
}

TEST(TrainConfig, FileMayBeEmptyWhereTheKeysAreOverrides) {
  const TemporaryFolder folder;
  const auto file = folder.write("empty.toml", "");
  EXPECT_EQ(load_config(file, std::vector<std::string>{"data.path=/a.txt",
                                                       "model.config=/m.json"})
                .data.path.at(0),
            "/a.txt");
}

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(plan::edit_distance("", "abc"), 3U);
  EXPECT_EQ(plan::edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(plan::edit_distance("steps", "steps"), 0U);
  EXPECT_EQ(plan::edit_distance("step", "steps"), 1U);
}

}  // namespace
}  // namespace accordion
