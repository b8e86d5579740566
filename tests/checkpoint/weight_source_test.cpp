// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/weight_source.h"

#include <sys/stat.h>

#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

void write_one(const std::filesystem::path& path, const std::string& name,
               float first) {
  const std::vector<float> values = {first, first + 1, first + 2, first + 3};
  const TensorData tensors[] = {tensor_data(name, "F32", {2, 2}, values)};
  write_safetensors(path, tensors);
}

void write_index(const TemporaryFolder& folder, const std::string& weight_map) {
  std::ofstream(folder.path() / "model.safetensors.index.json")
      << R"({"metadata":{"total_size":32},"weight_map":)" << weight_map << "}";
}

std::vector<float> read_two(const WeightSource& source,
                            const std::string& name) {
  const std::int64_t shape[] = {2, 2};
  std::vector<float> values(2);
  source.read(name, shape, 1, values);
  return values;
}

TEST(WeightSource, FindsTensorsInAFileOrAFolder) {
  const TemporaryFolder folder;
  write_one(folder.path() / "model.safetensors", "a", 10);
  for (const auto& path :
       {folder.path(), folder.path() / "model.safetensors"}) {
    const WeightSource source = WeightSource::open(path);
    EXPECT_TRUE(source.contains("a"));
    EXPECT_EQ(read_two(source, "a"), (std::vector<float>{11, 12}));
  }
}

TEST(WeightSource, FindsTensorsInWhicheverShardHoldsThem) {
  const TemporaryFolder folder;
  write_one(folder.path() / "model-1.safetensors", "a", 10);
  write_one(folder.path() / "model-2.safetensors", "b", 20);
  write_index(folder,
              R"({"a":"model-1.safetensors","b":"model-2.safetensors"})");
  const WeightSource source = WeightSource::open(folder.path());
  EXPECT_EQ(source.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_two(source, "a"), (std::vector<float>{11, 12}));
  EXPECT_EQ(read_two(source, "b"), (std::vector<float>{21, 22}));
}

TEST(WeightSource, NamesAShapeThatTheModelDoesNotHave) {
  const TemporaryFolder folder;
  write_one(folder.path() / "model.safetensors", "a", 10);
  const WeightSource source = WeightSource::open(folder.path());
  const std::int64_t shape[] = {4};
  std::vector<float> values(2);
  expect_checkpoint_error(
      [&] { source.read("a", shape, 0, values); },
      {"'a' has shape [2, 2], but the model wants [4]", "model.safetensors"});
}

TEST(WeightSource, NamesTheNearestTensors) {
  const TemporaryFolder folder;
  write_one(folder.path() / "model.safetensors", "model.norm.weight", 10);
  const WeightSource source = WeightSource::open(folder.path());
  expect_checkpoint_error(
      [&] { read_two(source, "norm.weight"); },
      {"holds no tensor 'norm.weight'", "nearest: 'model.norm.weight'"});
}

TEST(WeightSource, NamesFoldersThatHoldNoWeights) {
  const TemporaryFolder folder;
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {"neither model.safetensors nor"});
  write_index(folder, "3");
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {"has no \"weight_map\" object"});
  write_index(folder, R"({"a":"../a.safetensors"})");
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {"'a'", "is no name of a file in the same folder"});
  write_index(folder, R"({"a":"gone.safetensors"})");
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {"gone.safetensors", "cannot be opened"});
}

TEST(WeightSource, NamesAnIndexThatIsNoFile) {
  const TemporaryFolder folder;
  const auto index = folder.path() / "model.safetensors.index.json";
  std::filesystem::create_directory(index);
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {index.string(), "is not a file"});
  std::filesystem::remove(index);
  ASSERT_EQ(::mkfifo(index.c_str(), 0600), 0);
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {index.string(), "is not a file"});
}

TEST(WeightSource, NamesAFileThatMayLieElsewhere) {
  const TemporaryFolder folder;
  for (const char* name :
       {"", ".", "..", "a/b", "/etc/passwd", "model.safetensors\\u0000x"}) {
    write_index(folder, std::string(R"({"a":")") + name + "\"}");
    expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                            {"'a'", "is no name of a file in the same folder"});
  }
}

TEST(WeightSource, NamesAnIndexThatIsWrong) {
  const TemporaryFolder folder;
  write_one(folder.path() / "model-1.safetensors", "a", 10);
  write_one(folder.path() / "model-2.safetensors", "a", 20);
  write_index(folder, R"({"b":"model-1.safetensors"})");
  expect_checkpoint_error(
      [&] { WeightSource::open(folder.path()); },
      {"tensor 'b' is in 'model-1.safetensors', where it is not"});
  write_index(folder,
              R"({"a":"model-1.safetensors","b":"model-2.safetensors"})");
  expect_checkpoint_error([&] { WeightSource::open(folder.path()); },
                          {"tensor 'a' is both in"});
}

}  // namespace
}  // namespace accordion::testing
