// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/hugging_face_folder.h"
#include "accordion/checkpoint/positioned_file.h"
#include "accordion/checkpoint/weight_copy.h"
#include "accordion/checkpoint/weight_source.h"
#include "tests/checkpoint/model_checkpoint.h"
#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class HuggingFaceExport : public ::testing::Test {
 protected:
  /// Exports `model`, whose parameters `content` asks for unless it says which.
  WrittenFolder write(const ModelCheckpoint& model,
                      HuggingFaceFolder content = {},
                      const ElementsOf& elements = origins) {
    fs::remove_all(checkpoint_);
    write_checkpoint(checkpoint_, model, elements);
    if (content.parameters.empty()) {
      content.parameters = model.parameters;
    }
    return write_hugging_face_folder(CheckpointReader(checkpoint_), content,
                                     out_);
  }

  [[nodiscard]] std::vector<float> read(const ParameterShape& parameter) const {
    std::vector<float> elements(origins(parameter).size());
    WeightSource::open(out_).read(parameter.name, parameter.shape, 0, elements);
    return elements;
  }

  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out_)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  void expect_nothing_left() const {
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(out_.string() + ".unfinished"));
  }

  TemporaryFolder folder_;
  fs::path checkpoint_ = folder_.path() / "step-00000001";
  fs::path out_ = folder_.path() / "out";
};

const std::vector<ParameterShape> kThree = {
    {"embed.weight", {7, 5}}, {"norm.weight", {1}}, {"head.weight", {5, 7}}};

// One tensor is more than a thread takes at a time.
TEST_F(HuggingFaceExport, EveryElementArrivesAtItsPlace) {
  ModelCheckpoint model{.parameters = kThree};
  model.parameters.push_back({"large.weight", {1600, 1001}});
  for (const int num_threads : {1, 3}) {
    fs::remove_all(out_);
    const WrittenFolder written =
        write(model,
              {.texts = {{"config.json", "{}\n"}}, .num_threads = num_threads});
    EXPECT_EQ(written.num_files, 2);
    EXPECT_EQ(written.numel, 35 + 1 + 35 + 1600 * 1001);
    EXPECT_EQ(files(),
              (std::vector<std::string>{"config.json", "model.safetensors"}));
    EXPECT_EQ(read_text(out_ / "config.json"), "{}\n");
    for (const ParameterShape& parameter : model.parameters) {
      EXPECT_EQ(read(parameter), origins(parameter)) << parameter.name;
    }
    const SafetensorsFile file(out_ / "model.safetensors");
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.tensors().size(), 4U);
    EXPECT_FALSE(fs::exists(out_.string() + ".unfinished"));
  }
}

TEST_F(HuggingFaceExport, ShardsWhatIsMoreThanAFileMayHold) {
  const ModelCheckpoint model{.parameters = kThree};
  write(model, {.max_shard_bytes = 4 * (35 + 1 + 35)});
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
  fs::remove_all(out_);
  write(model, {.max_shard_bytes = 4 * (35 + 1)});
  EXPECT_EQ(files(),
            (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  const auto index =
      nlohmann::json::parse(read_text(out_ / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * (35 + 1 + 35));
  EXPECT_EQ(index["weight_map"]["norm.weight"],
            "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["head.weight"],
            "model-00002-of-00002.safetensors");
  for (const ParameterShape& parameter : kThree) {
    EXPECT_EQ(read(parameter), origins(parameter)) << parameter.name;
  }
  fs::remove_all(out_);
  write(model, {.max_shard_bytes = 1});  // each tensor alone
  EXPECT_EQ(files().size(), 4U);
}

/// What each dtype holds exactly.
std::vector<float> small_origins(const ParameterShape& parameter) {
  std::vector<float> elements = origins(parameter);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = std::fmod(elements[i], 128.0F) + static_cast<float>(i);
  }
  return elements;
}

TEST_F(HuggingFaceExport, ConvertsAndKeepsDtypes) {
  for (const std::string stored : {"F32", "BF16", "F16"}) {
    for (const std::string wanted : {"", "F32", "BF16", "F16"}) {
      fs::remove_all(out_);
      write({.parameters = kThree, .dtype = stored}, {.dtype = wanted},
            small_origins);
      const SafetensorsFile file(out_ / "model.safetensors");
      for (const ParameterShape& parameter : kThree) {
        EXPECT_EQ(file.find(parameter.name)->dtype,
                  wanted.empty() ? stored : wanted);
        EXPECT_EQ(read(parameter), small_origins(parameter));
      }
    }
  }
}

TEST_F(HuggingFaceExport, RoundsToNearestEven) {
  const ModelCheckpoint model{.parameters = {{"w", {4}}}, .world_size = 1};
  const auto elements = [](const ParameterShape&) {
    return std::vector<float>{1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 1 + 0x1p-11F, -2};
  };
  write(model, {.dtype = "BF16"}, elements);
  EXPECT_EQ(read(model.parameters[0]),
            (std::vector<float>{1, 1 + 0x1p-6F, 1, -2}));
  fs::remove_all(out_);
  write(model, {.dtype = "F16"}, elements);
  EXPECT_EQ(read(model.parameters[0]),
            (std::vector<float>{1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 1, -2}));
}

TEST_F(HuggingFaceExport, NamesAValueThatFp16CannotHold) {
  const ModelCheckpoint model{.parameters = {{"w", {2}}}, .world_size = 1};
  const auto elements = [](const ParameterShape&) {
    return std::vector<float>{1, 70000};
  };
  expect_checkpoint_error(
      [&] { write(model, {.dtype = "F16"}, elements); },
      {"'w', element 1: 70000 is too large for fp16", "--dtype bf16"});
  expect_nothing_left();
}

// As transformers saves it: under one name.
TEST_F(HuggingFaceExport, WritesATiedHeadOnce) {
  const ModelCheckpoint model{.parameters = {{"embed.weight", {7, 5}}},
                              .aliases = {{"head.weight", "embed.weight"}}};
  write(model);
  EXPECT_EQ(WeightSource::open(out_).names(),
            std::vector<std::string>{"embed.weight"});
  // The same where the stored name is the one that the model does not have.
  fs::remove_all(out_);
  const ParameterShape head{"head.weight", {7, 5}};
  write(model, {.parameters = {head}});
  EXPECT_EQ(WeightSource::open(out_).names(),
            std::vector<std::string>{"head.weight"});
  EXPECT_EQ(read(head), origins(model.parameters[0]));
}

TEST_F(HuggingFaceExport, LeavesOutWhatTheModelComputes) {
  ModelCheckpoint model{.parameters = kThree};
  model.parameters.push_back({"layers.0.rotary_emb.inv_freq", {2}});
  write(model, {.parameters = kThree});
  EXPECT_EQ(WeightSource::open(out_).names().size(), 3U);
}

TEST_F(HuggingFaceExport, NamesParametersThatDoNotFitTheModel) {
  const ModelCheckpoint model{.parameters = kThree};
  auto more = kThree;
  more.push_back({"layers.0.up.weight", {2, 2}});
  expect_checkpoint_error([&] { write(model, {.parameters = more}); },
                          {"tensor 'model/layers.0.up.weight': it is missing",
                           checkpoint_.string()});
  auto fewer = kThree;
  fewer.pop_back();
  expect_checkpoint_error([&] { write(model, {.parameters = fewer}); },
                          {"'model/head.weight'", "has no such parameter"});
  auto other = kThree;
  other[0].shape = {5, 7};
  expect_checkpoint_error(
      [&] { write(model, {.parameters = other}); },
      {"'model/embed.weight'", "it has shape [7, 5]", "[5, 7]"});
  expect_nothing_left();
}

TEST_F(HuggingFaceExport, OverwritesNothing) {
  const ModelCheckpoint model{.parameters = kThree};
  fs::create_directory(out_);
  std::ofstream(out_ / "mine.txt") << "mine";
  expect_checkpoint_error([&] { write(model); },
                          {out_.string(), "exists already and is not empty"});
  EXPECT_EQ(files(), std::vector<std::string>{"mine.txt"});
  fs::remove(out_ / "mine.txt");
  fs::create_directory(out_.string() + ".unfinished");  // of a killed process
  std::ofstream(out_.string() + ".unfinished/old.txt") << "old";
  out_ += "/";
  write(model);
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
}

TEST_F(HuggingFaceExport, DamageLeavesNoFolder) {
  const ModelCheckpoint model{.parameters = kThree};
  write(model);
  fs::remove_all(out_);
  const fs::path shard = checkpoint_ / shard_file_name(1, 3);
  const auto size = static_cast<std::streamoff>(fs::file_size(shard));
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(size - 1)
      .put('\x55');
  expect_checkpoint_error(
      [&] {
        write_hugging_face_folder(CheckpointReader(checkpoint_),
                                  {.parameters = kThree, .num_threads = 2},
                                  out_);
      },
      {shard.string(), "do not have the checksum"});
  expect_nothing_left();
}

TEST(PositionedFile, WritersFillTheirParts) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  PositionedFile first = PositionedFile::create(path, 6);
  PositionedFile second = PositionedFile::open(path);
  second.write(3, std::as_bytes(std::span("def", 3)));
  first.write(0, std::as_bytes(std::span("abc", 3)));
  first.sync();
  EXPECT_EQ(read_text(path), "abcdef");
  std::vector<std::byte> part(2);
  first.read(2, part);
  EXPECT_EQ(part, (std::vector{std::byte{'c'}, std::byte{'d'}}));
  expect_checkpoint_error([&] { first.read(5, part); },
                          {path.string(), "ends before byte 6"});
  expect_checkpoint_error([&] { PositionedFile::create(path, 6); },
                          {"cannot be opened", "Nothing is overwritten"});
}

TEST(PositionedFile, SaysHowMuchRoomAFullDiskHas) {
  expect_checkpoint_error(
      [] {
        PositionedFile file = PositionedFile::open("/dev/full");
        file.write(0, std::as_bytes(std::span("abc", 3)));
      },
      {"'/dev/full' cannot be written: No space left", "are free on the disk"});
}

}  // namespace
}  // namespace accordion::testing
