// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_index.h"

#include <limits>

#include "tests/checkpoint/sealed_index.h"
#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

CheckpointIndex small_index() {
  CheckpointIndex index;
  index.world_size = 2;
  index.values = {
      {"trainer/step", std::int64_t{1000}},
      {"trainer/elapsed_seconds", 0.1},
      {"trainer/config", "text with \"quotes\",\nlines and \u00e9"}};
  index.aliases = {{"lm_head.weight", "embed.weight"}};
  index.files = {{"shard-0", kChecksumBlockBytes + 1, {1, 0xfedcba9876543210}},
                 {"shard-1", 12, {3}},
                 {"empty", 0, {}}};
  index.tensors["model/embed.weight"] = {
      "F32", {5, 2}, {{0, 0, 3, 64}, {1, 3, 6, 0}, {0, 6, 10, 76}}};
  index.tensors["model/none"] = {"F32", {0, 2}, {}};
  index.tensors["model/scalar"] = {"I64", {}, {{0, 0, 1, 1000}}};
  return index;
}

/// The members of an index as they stand in the file; each of the faults
/// replaces one.
struct Members {
  std::string format = R"("accordion.checkpoint")";
  std::string version = "1";
  std::string world_size = "1";
  std::string values = "{}";
  std::string aliases = "{}";
  std::string files =
      R"([{"name":"a","bytes":40,"xxh3_64":["0000000000000000"]}])";
  std::string tensors =
      R"({"model/w":{"dtype":"F32","shape":[2,5],"ranges":[[0,0,10,0]]}})";

  [[nodiscard]] std::string text() const {
    return sealed("{\"format\":" + format + ",\"version\":" + version +
                  ",\"world_size\":" + world_size + ",\"values\":" + values +
                  ",\"aliases\":" + aliases + ",\"files\":" + files +
                  ",\"tensors\":" + tensors + ",\n");
  }
};

struct Fault {
  std::string content;
  std::vector<std::string> phrases;
};

/// Each fault as the content of a member is an error of these words that names
/// the file.
void expect_faults(std::string Members::*member,
                   const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.content.substr(0, 200));
    Members members;
    members.*member = fault.content;
    std::vector<std::string> phrases = fault.phrases;
    phrases.emplace_back("'run/index.json'");
    expect_checkpoint_error(
        [&] { (void)parse_checkpoint_index(members.text(), "run/index.json"); },
        phrases);
  }
}

TEST(CheckpointIndex, ReadsBackWhatWasWritten) {
  const CheckpointIndex index = small_index();
  const std::string text = to_text(index);
  const CheckpointIndex read = parse_checkpoint_index(text, "index.json");
  EXPECT_EQ(read.world_size, 2);
  EXPECT_EQ(read.values, index.values);
  EXPECT_EQ(read.aliases, index.aliases);
  ASSERT_EQ(read.files.size(), 3U);
  EXPECT_EQ(read.files[0].name, "shard-0");
  EXPECT_EQ(read.files[0].bytes, kChecksumBlockBytes + 1);
  EXPECT_EQ(read.files[0].checksums, index.files[0].checksums);
  const StoredTensor& tensor = read.tensors.at("model/embed.weight");
  EXPECT_EQ(tensor.dtype, "F32");
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(tensor.numel(), 10);
  ASSERT_EQ(tensor.ranges.size(), 3U);
  EXPECT_EQ(tensor.ranges[1].file, 1);
  EXPECT_EQ(tensor.ranges[1].begin, 3);
  EXPECT_EQ(tensor.ranges[1].end, 6);
  EXPECT_EQ(tensor.ranges[2].offset, 76);
  EXPECT_EQ(read.tensors.at("model/scalar").numel(), 1);
  EXPECT_EQ(read.tensors.at("model/none").numel(), 0);
  EXPECT_EQ(to_text(read), text);
}

TEST(CheckpointIndex, KeepsNumbersExactlyAndOfTheirType) {
  CheckpointIndex index;
  index.values = {{"a", kMax},
                  {"b", std::numeric_limits<std::int64_t>::min()},
                  {"c", 3.0},
                  {"d", -0.0},
                  {"e", 0.1 + 0.2},
                  {"f", std::numeric_limits<double>::denorm_min()},
                  {"g", std::numeric_limits<double>::max()},
                  {"xxh3_64", "looks like the last line"}};
  EXPECT_EQ(parse_checkpoint_index(to_text(index), "i").values, index.values);
}

TEST(CheckpointIndex, HasALineForEachTensorFileAndValue) {
  const std::string text = to_text(small_index());
  for (const char* line :
       {"\n \"version\": 1,\n", "\n  \"trainer/step\": 1000\n",
        "\n  {\"name\":\"shard-1\",\"bytes\":12,\"xxh3_64\":"
        "[\"0000000000000003\"]},\n",
        "\n  \"model/scalar\": {\"dtype\":\"I64\",\"shape\":[],\"ranges\":"
        "[[0,0,1,1000]]}\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " in " << text;
  }
}

TEST(CheckpointIndex, SaysWhichIntegerIsMissing) {
  const CheckpointIndex index = small_index();
  EXPECT_EQ(index.integer("trainer/step", "run"), 1000);
  for (const char* name : {"trainer/none", "trainer/elapsed_seconds"}) {
    expect_checkpoint_error([&] { (void)index.integer(name, "run"); },
                            {"'run' has no integer", name});
  }
}

TEST(CheckpointIndex, WritesNothingThatJsonCannotHold) {
  CheckpointIndex index;
  index.values = {{"trainer/config", "caf\xe9"}};
  expect_checkpoint_error([&] { (void)to_text(index); },
                          {"'trainer/config'", "UTF-8"});
  index.values = {{"a", std::numeric_limits<double>::quiet_NaN()}};
  expect_checkpoint_error([&] { (void)to_text(index); }, {"'a'", "nan"});
}

TEST(CheckpointIndex, AnyChangedByteIsFound) {
  const std::string text = to_text(small_index());
  for (std::size_t i = 0; i < text.size(); ++i) {
    SCOPED_TRACE(i);
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    expect_checkpoint_error([&] { (void)parse_checkpoint_index(changed, "i"); },
                            {"'i', last line: "});
  }
}

TEST(CheckpointIndex, AnyTruncationIsFound) {
  const std::string text = to_text(small_index());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    expect_checkpoint_error(
        [&] { (void)parse_checkpoint_index(text.substr(0, bytes), "i"); },
        {"'i', last line: "});
  }
  expect_checkpoint_error(
      [&] { (void)parse_checkpoint_index(text + "\n", "i"); },
      {"the checksum is not that of the lines before it"});
}

TEST(CheckpointIndex, AcceptsTheMembersThatFaultsReplace) {
  const auto index = parse_checkpoint_index(Members().text(), "i");
  EXPECT_EQ(index.tensors.at("model/w").numel(), 10);
}

TEST(CheckpointIndex, NamesWhatIsWrongAtTheTopLevel) {
  expect_faults(&Members::format, {{R"("pickle")", {"\"format\" is not that"}},
                                   {"3", {"\"format\" is not a text"}},
                                   {R"("accordion.checkpoint","format":1)",
                                    {"'format' appears twice"}}});
  expect_faults(&Members::version,
                {{"2", {"version 2", "reads version 1", "Use the release"}},
                 {"0", {"version 0"}},
                 {"-1", {"\"version\" is -1, not a non-negative integer"}},
                 {"\"1\"", {"\"version\" is \"1\""}}});
  expect_faults(&Members::world_size, {{"0", {"a world size of 0"}},
                                       {"2147483648", {"a world size of"}},
                                       {"1.0", {"\"world_size\" is 1.0"}}});
  for (const char* text : {"[]\n", "", "{,\n", "3,\n", "{},\n"}) {
    SCOPED_TRACE(text);
    expect_checkpoint_error(
        [&] { (void)parse_checkpoint_index(sealed(text), "i"); },
        {"'i': it is not JSON"});
  }
  expect_checkpoint_error(
      [&] { (void)parse_checkpoint_index(sealed("{"), "i"); },
      {"'i', top level: there is no \"format\""});
}

TEST(CheckpointIndex, NamesAValueThatIsNone) {
  expect_faults(
      &Members::values,
      {{R"({"a":null})", {"value 'a': null is no integer, finite number"}},
       {R"({"a":true})", {"value 'a': true"}},
       {R"({"a":[1]})", {"value 'a': [1]"}},
       {R"({"a":18446744073709551615})", {"value 'a': 18446744073709551615"}},
       {R"({"a":NaN})", {"it is not JSON"}},
       {R"({"a":Infinity})", {"it is not JSON"}},
       {R"({"a":1e999})", {"it is not JSON", "number overflow"}},
       {R"({"a":1,"a":2})", {"'a' appears twice"}},
       {"{\"a\":\"\xff\"}", {"it is not JSON"}},
       {"[]", {"\"values\" is not an object"}}});
}

TEST(CheckpointIndex, NamesAnAliasOfNothing) {
  expect_faults(
      &Members::aliases,
      {{R"({"b":"none"})", {"alias 'b': there is no parameter \"none\""}},
       {R"({"b":"model/w"})", {"there is no parameter \"model/w\""}},
       {R"({"b":3})", {"alias 'b': there is no parameter 3"}},
       {"null", {"\"aliases\" is not an object"}}});
}

std::string file_named(const std::string& name) {
  return R"([{"name":")" + name +
         R"(","bytes":40,"xxh3_64":["0000000000000000"]}])";
}

TEST(CheckpointIndex, NamesAFileThatMayLieElsewhere) {
  std::vector<Fault> faults;
  for (const char* name :
       {"", ".", "..", "../a", "/etc/passwd", "a/b", "a\\\\b", ".hidden"}) {
    faults.push_back({file_named(name), {"file 0 '", "is no name of a file"}});
  }
  faults.push_back({file_named("a\\u0000b"), {"is no name of a file"}});
  expect_faults(&Members::files, faults);
}

TEST(CheckpointIndex, NamesAFileThatIsWrong) {
  const auto file = [](const std::string& bytes, const std::string& sums) {
    return R"({"name":"a","bytes":)" + bytes + R"(,"xxh3_64":)" + sums + "}";
  };
  const std::string zero = R"("0000000000000000")";
  expect_faults(
      &Members::files,
      {{"[" + file("40", "[]") + "]",
        {"file 0 'a': 40 bytes have 1 blocks, but 0 checksums"}},
       {"[" + file("1048577", "[" + zero + "]") + "]",
        {"1048577 bytes have 2 blocks, but 1 checksums"}},
       {"[" + file("1048576", "[" + zero + "," + zero + "]") + "]",
        {"1048576 bytes have 1 blocks, but 2 checksums"}},
       {"[" + file("9223372036854775807", "[" + zero + "]") + "]",
        {"9223372036854775807 bytes have 8796093022208 blocks"}},
       {"[" + file("9223372036854775808", "[]") + "]",
        {"\"bytes\" is 9223372036854775808"}},
       {"[" + file("-1", "[]") + "]", {"\"bytes\" is -1"}},
       {"[" + file("1e3", "[]") + "]", {"\"bytes\" is 1000.0"}},
       {"[" + file("40", "[0]") + "]", {"'0' is no checksum of 16 digits"}},
       {"[" + file("40", R"(["000000000000000"])") + "]", {"is no checksum"}},
       {"[" + file("40", R"(["-000000000000001"])") + "]", {"is no checksum"}},
       {"[" + file("40", R"(["000000000000000g"])") + "]", {"is no checksum"}},
       {"[" + file("40", R"(["00000000000000000"])") + "]", {"is no checksum"}},
       {"[" + file("40", "3") + "]", {"\"xxh3_64\" is not an array"}},
       {"[" + file("40", "[" + zero + "]") + "," +
            file("40", "[" + zero + "]") + "]",
        {"file 'a': it is listed twice"}},
       {R"([{"bytes":40}])", {"file 0: there is no \"name\""}},
       {"[3]", {"file 0: there is no \"name\""}},
       {"{}", {"\"files\" is not an array"}}});
}

std::string tensor(const std::string& dtype, const std::string& shape,
                   const std::string& ranges) {
  return R"({"model/w":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"ranges":)" + ranges + "}}";
}

TEST(CheckpointIndex, NamesATensorWhoseShapeOrDtypeIsWrong) {
  const std::string w = "tensor 'model/w': ";
  const std::string overflow = "has more bytes than 63 bits count";
  expect_faults(
      &Members::tensors,
      {{tensor("F33", "[10]", "[]"), {w, "dtype 'F33' is not one of"}},
       {tensor("", "[10]", "[]"), {w, "dtype ''"}},
       {tensor("F32", "[-1]", "[]"), {w, "a dim is -1"}},
       {tensor("F32", "[2.5]", "[]"), {w, "a dim is 2.5"}},
       {tensor("F32", "[18446744073709551616]", "[]"), {w, "a dim is 1.8"}},
       {tensor("F32", "[9223372036854775807]", "[]"), {w, overflow}},
       {tensor("F32", "[4294967296,4294967296]", "[]"),
        {w, "shape [4294967296, 4294967296]", overflow}},
       {tensor("F64", "[1152921504606846976]", "[]"), {w, overflow}},
       {tensor("F32", "3", "[]"), {w, "\"shape\" is not an array"}},
       {tensor("F32", "[10]", "3"), {w, "\"ranges\" is not an array"}},
       {R"({"model/w":{"shape":[],"ranges":[]}})", {w, "no \"dtype\""}},
       {R"({"model/w":{"dtype":1}})", {w, "\"dtype\" is not a text"}},
       {R"({"model/w":3})", {w, "there is no \"dtype\""}},
       {R"({"a":{"dtype":"F32","shape":[0],"ranges":[]},)"
        R"("a":{"dtype":"F32","shape":[0],"ranges":[]}})",
        {"'a' appears twice"}},
       {"[]", {"\"tensors\" is not an object"}}});
}

TEST(CheckpointIndex, NamesATensorWhoseRangesAreWrong) {
  const std::string w = "tensor 'model/w': ";
  const auto ranges = [](const std::string& text) {
    return tensor("F32", "[2,5]", text);
  };
  expect_faults(
      &Members::tensors,
      {{ranges("[]"), {w, "ranges hold 0 elements of 10"}},
       {ranges("[[0,0,9,0]]"), {w, "ranges hold 9 elements of 10"}},
       {ranges("[[0,0,5,0],[0,6,10,20]]"),
        {w, "a range begins at element 6, but the one before it ends at 5"}},
       {ranges("[[0,0,6,0],[0,5,10,20]]"), {w, "element 5", "ends at 6"}},
       {ranges("[[0,5,10,20],[0,0,5,0]]"), {w, "element 5", "ends at 0"}},
       {ranges("[[0,0,5,0],[0,5,10,19]]"),
        {w, "bytes at offset 19 overlap those of 'model/w'"}},
       {ranges("[[0,0,10,4]]"),
        {w, "elements [0, 10) at offset 4 do not lie in the 40 bytes of 'a'"}},
       {ranges("[[0,0,10,9223372036854775807]]"), {w, "do not lie in"}},
       {ranges("[[0,0,9223372036854775807,0]]"), {w, "do not lie in"}},
       {ranges("[[0,0,10,-4]]"), {w, "an offset is -4"}},
       {ranges("[[0,-1,10,0]]"), {w, "begin is -1"}},
       {ranges("[[0,0,10.0,0]]"), {w, "end is 10.0"}},
       {ranges("[[0,10,0,0]]"), {w, "elements [10, 0)", "do not lie in"}},
       {ranges("[[1,0,10,0]]"), {w, "there is no file 1"}},
       {ranges("[[-1,0,10,0]]"), {w, "a file is -1"}},
       {ranges("[[0,0,10]]"), {w, "range [0,0,10] is not [file, begin"}},
       {ranges("[[0,0,10,0,0]]"), {w, "is not [file, begin"}},
       {ranges("[3]"), {w, "range 3 is not [file, begin"}},
       {R"({"model/v":{"dtype":"U8","shape":[8],"ranges":[[0,0,8,4]]},)"
        R"("model/w":{"dtype":"U8","shape":[8],"ranges":[[0,0,8,0]]}})",
        {"tensor 'model/v'", "at offset 4 overlap those of 'model/w'"}}});
}

// Elements that are not there need no bytes, wherever they claim to be.
TEST(CheckpointIndex, AcceptsTensorsWithoutElements) {
  Members members;
  members.tensors =
      R"({"a":{"dtype":"F32","shape":[4611686018427387904,4,0],"ranges":[]},)"
      R"("b":{"dtype":"F32","shape":[0],"ranges":[[0,0,0,40]]}})";
  const CheckpointIndex index = parse_checkpoint_index(members.text(), "i");
  EXPECT_EQ(index.tensors.at("a").numel(), 0);
  EXPECT_EQ(index.tensors.at("b").numel(), 0);
}

TEST(CheckpointIndex, AMillionArraysWithinEachOtherAreRefused) {
  for (const char* start : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) {
      deep += start;
    }
    expect_faults(&Members::values, {{deep, {"more than 6 objects"}}});
  }
}

// An error is for people to read, whatever the file holds.
TEST(CheckpointIndex, ErrorsAreShortWhereContentIsLong) {
  const std::string digits(1'000'000, '1');
  for (const std::string& values :
       {"{\"a\":[" + digits + "0]}", "{\"a\":" + digits + "x}",
        "{\"a\":[\"" + digits + "\"]}", "{\"a\":\"" + digits}) {
    Members members;
    members.values = values;
    try {
      (void)parse_checkpoint_index(members.text(), "i");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CheckpointError& error) {
      EXPECT_LT(std::string(error.what()).size(), 1000U);
    }
  }
}

}  // namespace
}  // namespace accordion::testing
