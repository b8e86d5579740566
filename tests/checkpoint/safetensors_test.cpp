// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors.h"

#include <cmath>
#include <numeric>

#include <sys/stat.h>

#include "accordion/checkpoint/float_conversion.h"
#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

std::vector<float> counted(std::size_t numel) {
  std::vector<float> values(numel);
  std::iota(values.begin(), values.end(), 0.5F);
  return values;
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> matrix = counted(12);
  const std::vector<std::int64_t> indices = {1, 2};
  const std::vector<float> nothing;
  const TensorData tensors[] = {
      tensor_data("layer.weight", "F32", {3, 4}, matrix),
      tensor_data("index", "I64", {2}, indices),
      tensor_data("empty", "F32", {0, 4}, nothing)};
  write_safetensors(path, tensors, {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 3U);
  const TensorEntry* weight = file.find("layer.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(weight->begin % 64, 0);
  std::vector<float> got(12);
  file.read(*weight, 0, got);
  EXPECT_EQ(got, matrix);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".unfinished"));
}

TEST(Safetensors, ReadsARangeOfElements) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> values = counted(20);
  const TensorData tensors[] = {tensor_data("w", "F32", {4, 5}, values)};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  std::vector<float> got(6);
  file.read(*file.find("w"), 7, got);
  EXPECT_EQ(got, std::vector<float>(values.begin() + 7, values.begin() + 13));
  file.read(*file.find("w"), 20, std::span<float>());
  expect_checkpoint_error([&] { file.read(*file.find("w"), 15, got); },
                          {"elements [15, 21)", "'w'", "it has 20"});
}

// More elements than are converted at a time, from an odd start.
TEST(Safetensors, WidensBf16InChunks) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  std::vector<std::uint16_t> bits(300'000);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(0x3f80 + i % 128);
  }
  const TensorData tensors[] = {tensor_data("w", "BF16", {300'000}, bits)};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  std::vector<float> got(bits.size() - 3);
  file.read(*file.find("w"), 3, got);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], 1.0F + static_cast<float>((i + 3) % 128) / 128);
  }
}

TEST(Safetensors, WidensF16WithSubnormalsAndInfinities) {
  const std::vector<std::uint16_t> bits = {0x0000, 0x8000, 0x3c00, 0xc000,
                                           0x0001, 0x03ff, 0x0400, 0x7bff,
                                           0x7c00, 0xfc00, 0x7e00};
  std::vector<float> got(bits.size());
  detail::conversion_to_fp32("F16")(bits.data(), got.data(),
                                    static_cast<std::int64_t>(bits.size()));
  const std::vector<float> expected = {
      0.0F,     -0.0F,    1.0F,     -2.0F,    0x1p-24F, 1023 * 0x1p-24F,
      0x1p-14F, 65504.0F, INFINITY, -INFINITY};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i], expected[i]) << i;
  }
  EXPECT_TRUE(std::signbit(got[1]));
  EXPECT_TRUE(std::isnan(got.back()));
}

TEST(Safetensors, ReadsNoIntegersAsWeights) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<std::int64_t> values = {1, 2};
  const TensorData tensors[] = {tensor_data("i", "I64", {2}, values)};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  std::vector<float> got(2);
  expect_checkpoint_error([&] { file.read(*file.find("i"), 0, got); },
                          {"'i'", "dtype 'I64' cannot be read as fp32"});
}

TEST(Safetensors, AcceptsScalarsAndTrailingSpaces) {
  const TemporaryFolder folder;
  const auto path = write_raw(
      folder, R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}      )",
      4);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors()[0].numel(), 1);
}

struct Fault {
  const char* header;
  std::size_t data_bytes;
  const char* phrase;
};

TEST(Safetensors, NamesEachFaultOfAHeader) {
  const Fault faults[] = {
      {R"([1])", 0, "it is not a JSON object"},
      {R"({"w":)", 0, "it is not JSON"},
      {R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, "gives no dtype"},
      {R"({"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4,
       "dtype 'F33' is not one of the format's"},
      {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "a dim is -1"},
      {R"({"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
       "a dim is 1.5"},
      {R"({"w":{"dtype":"F32","shape":3,"data_offsets":[0,4]}})", 4,
       "shape is 3, not an array"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "F32 [2] needs 8 bytes but data_offsets give 4"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "bytes [0, 8) do not lie in the 4 bytes of data"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "bytes [4, 0) do not lie"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4,
       "data_offsets is not an array of two"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],)"
       R"("data_offsets":[0,0]}})",
       4, "more elements than 63 bits count"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "its bytes overlap those of 'a'"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "'w' appears twice"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],)"
       R"("dtype":"F32"}})",
       4, "'dtype' appears twice"},
      {R"({"w":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
       "more than 3 objects and arrays within each other"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4,
       "an offset is -4"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,1e999]}})", 4,
       "number overflow"},
      {R"({"w":{"dtype":"F32","shape":[1],)"
       R"("data_offsets":[9223372036854775804,9223372036854775808]}})",
       4, "an offset is 9223372036854775808"},
      {R"({"w":{"dtype":"U8","shape":[9223372036854775807],)"
       R"("data_offsets":[0,9223372036854775807]}})",
       4, "do not lie in the 4 bytes of data"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551616],)"
       R"("data_offsets":[0,4]}})",
       4, "a dim is 1.8"},
      {R"({"w":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4,
       "dtype '4' is not one of the format's"},
      {R"({"w":[]})", 0, "gives no dtype"},
      {"{\"\xff\":3}", 0, "it is not JSON"},
      {R"({"__metadata__":{"a":NaN}})", 0, "it is not JSON"},
      {R"({"__metadata__":{"a":1}})", 0, "the format wants strings"},
      {R"({"__metadata__":["a"]})", 0, "the format wants strings"},
      {R"({"__metadata__":"a"})", 0, "the format wants strings"}};
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.header);
    const TemporaryFolder folder;
    const auto path = write_raw(folder, fault.header, fault.data_bytes);
    expect_checkpoint_error([&] { SafetensorsFile file(path); },
                            {path.string(), fault.phrase});
  }
}

TEST(Safetensors, NamesAHeaderThatDoesNotFitTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "short.safetensors";
  for (const std::string& content :
       {std::string("abc"),
        std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10),
        std::string("\x01\0\0\0\0\0\0\0{", 9)}) {
    std::ofstream(path, std::ios::binary) << content;
    expect_checkpoint_error([&] { SafetensorsFile file(path); },
                            {path.string(), "does not fit a file of"});
  }
  expect_checkpoint_error([&] { SafetensorsFile file(folder.path() / "no"); },
                          {"cannot be opened"});
  expect_checkpoint_error([&] { SafetensorsFile file(folder.path()); },
                          {"is not a file"});
}

TEST(Safetensors, AnyTruncationOfTheHeaderIsFound) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2};
  const TensorData tensors[] = {tensor_data("w", "F32", {2}, values)};
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, tensors);
  for (auto bytes = std::filesystem::file_size(path); bytes-- > 0;) {
    std::filesystem::resize_file(path, bytes);
    expect_checkpoint_error([&] { SafetensorsFile file(path); },
                            {path.string()});
  }
}

TEST(Safetensors, AMillionArraysWithinEachOtherAreRefused) {
  const TemporaryFolder folder;
  const auto path =
      write_raw(folder, "{\"w\":" + std::string(1'000'000, '['), 0);
  expect_checkpoint_error([&] { SafetensorsFile file(path); },
                          {path.string(), "more than 3 objects"});
}

// Whatever its other dims are, and in whatever order.
TEST(Safetensors, ATensorWithADimOf0HasNoElements) {
  const TemporaryFolder folder;
  const auto path =
      write_raw(folder,
                R"({"w":{"dtype":"F32","shape":[4611686018427387904,4,0],)"
                R"("data_offsets":[0,0]}})",
                0);
  EXPECT_EQ(SafetensorsFile(path).find("w")->numel(), 0);
}

// Opening one for reading waits for somebody who writes.
TEST(Safetensors, APipeIsNoFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_checkpoint_error([&] { SafetensorsFile file(path); },
                          {path.string(), "is not a file"});
}

TEST(Safetensors, WriterNamesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> two = {1, 2};
  const TensorData small[] = {tensor_data("w", "F32", {3}, two)};
  expect_checkpoint_error([&] { write_safetensors(path, small); },
                          {"'w'", "F32 [3] has 12 bytes, but 8 were given"});
  const TensorData twice[] = {tensor_data("w", "F32", {2}, two),
                              tensor_data("w", "F32", {2}, two)};
  expect_checkpoint_error([&] { write_safetensors(path, twice); },
                          {"'w'", "reserved or taken"});
  const TensorData one[] = {tensor_data("w", "F32", {2}, two)};
  expect_checkpoint_error(
      [&] { write_safetensors(folder.path() / "no" / "a.safetensors", one); },
      {"cannot be made"});
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace accordion::testing
