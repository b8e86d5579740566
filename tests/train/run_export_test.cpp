// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_export.h"

#include <fstream>
#include <functional>
#include <stdexcept>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/weight_source.h"
#include "accordion/models/llama_config.h"
#include "accordion/models/llama_parameters.h"
#include "accordion/train/train_config.h"
#include "tests/checkpoint/model_checkpoint.h"
#include "tests/checkpoint/weight_files.h"
#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::read_file;

class RunExport : public ::testing::Test {
 protected:
  void SetUp() override {
    values_["model/config.json"] = model_;
    configure({});
  }

  /// Sets the configuration of the run, with `overrides`.
  void configure(const std::vector<std::string>& overrides) {
    values_["trainer/config"] =
        to_toml(parse_config("model.config = \"/gone/model.json\"\n"
                             "data.path = \"/gone/data.txt\"\n",
                             "run.toml", overrides));
  }

  void checkpoint(std::int64_t step) {
    testing::ModelCheckpoint model{.world_size = 2, .values = values_};
    for (auto& [name, shape] :
         llama_parameters(LlamaConfig::from_json(model_, "model"))) {
      model.parameters.push_back({name, shape});
    }
    testing::write_checkpoint(run_ / "checkpoints" / step_folder_name(step),
                              model);
  }

  json exported_json(const std::string& name) {
    return json::parse(read_file(out_ / name));
  }

  testing::TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  fs::path out_ = folder_.path() / "out";
  std::string model_ =
      R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
          "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 1, "vocab_size": 256, "my_key": "mine",
          "tie_word_embeddings": true})";
  CheckpointValues values_;
};

TEST_F(RunExport, TakesTheNewestCheckpointOfARun) {
  checkpoint(3);
  checkpoint(12);
  fs::create_directory(run_ / "checkpoints" / "step-00000020.unfinished");
  const ExportResult result = export_run(run_, out_, {});
  EXPECT_EQ(result.checkpoint, run_ / "checkpoints" / "step-00000012");
  fs::remove_all(out_);
  const fs::path third = run_ / "checkpoints" / "step-00000003";
  EXPECT_EQ(export_run(third, out_, {}).checkpoint, third);
  fs::remove_all(out_);
  EXPECT_EQ(export_run(run_ / "checkpoints", out_, {}).checkpoint,
            result.checkpoint);
}

TEST_F(RunExport, WritesWhatTransformersLoads) {
  checkpoint(1);
  const ExportResult result = export_run(run_, out_, {.dtype = "BF16"});
  EXPECT_TRUE(result.has_tokenizer);
  EXPECT_EQ(result.folder.num_files, 5);
  const json config = exported_json("config.json");
  EXPECT_EQ(config["architectures"], json({"LlamaForCausalLM"}));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["my_key"], "mine");
  EXPECT_TRUE(config["eos_token_id"].is_null());
  EXPECT_EQ(exported_json("generation_config.json"),
            json({{"_from_model_config", true}}));
  EXPECT_EQ(exported_json("tokenizer.json")["model"]["vocab"]["A"], 65);
  EXPECT_EQ(LlamaConfig::from_file(out_).vocab_size, 256);
  const WeightSource weights = WeightSource::open(out_);
  EXPECT_FALSE(weights.contains("lm_head.weight"));
  EXPECT_EQ(weights.find("model.norm.weight").dtype, "BF16");
  fs::remove_all(out_);
  export_run(run_, out_, {});
  EXPECT_EQ(exported_json("config.json")["dtype"], "float32");
}

TEST_F(RunExport, TakesTheSentencePieceModelOfTheRun) {
  const fs::path model = testing::train_sentence_piece(folder_.path());
  configure({"data.tokenizer=" + model.string()});
  checkpoint(1);
  export_run(run_, out_, {});
  EXPECT_EQ(read_file(out_ / "tokenizer.model"), read_file(model));
  EXPECT_EQ(exported_json("tokenizer_config.json")["eos_token"], "</s>");
  EXPECT_EQ(exported_json("config.json")["bos_token_id"], 1);
  EXPECT_EQ(exported_json("generation_config.json")["eos_token_id"], 2);
}

TEST_F(RunExport, SaysWhichTokenizerIsGone) {
  configure({"data.tokenizer=/gone/pieces.model"});
  checkpoint(1);
  try {
    export_run(run_, out_, {});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("/gone/pieces.model"));
  }
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_TRUE(export_run(run_, out_, {.tokenizer = "bytes"}).has_tokenizer);
}

TEST_F(RunExport, KnowsNoTokenizerOfTokenFiles) {
  model_.replace(model_.find("256"), 3, "300");
  values_["model/config.json"] = model_;
  configure({"data.path=/gone/tokens.bin", "data.eos_token=7"});
  checkpoint(1);
  EXPECT_FALSE(export_run(run_, out_, {}).has_tokenizer);
  EXPECT_FALSE(fs::exists(out_ / "tokenizer.json"));
  EXPECT_EQ(exported_json("config.json")["eos_token_id"], 7);
}

TEST_F(RunExport, NeedsTheModelButNoTrainer) {
  values_.erase("trainer/config");
  checkpoint(1);
  EXPECT_FALSE(export_run(run_, out_, {}).has_tokenizer);
  fs::remove_all(run_);
  values_.erase("model/config.json");
  checkpoint(1);
  testing::expect_checkpoint_error(
      [&] { export_run(run_, folder_.path() / "other", {}); },
      {"holds no text 'model/config.json'", "step-00000001"});
  testing::expect_checkpoint_error(
      [&] { export_run(folder_.path(), folder_.path() / "other", {}); },
      {"is no checkpoint, and holds no complete one"});
}

}  // namespace
}  // namespace accordion
