// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/explain/explain.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using testing::expect_message;
using ::testing::HasSubstr;

/// The figure whose words contain `what` and whose accounting `counting`.
double figure(const Explanation& explanation, std::string_view what,
              std::string_view counting = "") {
  for (const Figure& each : explanation.figures) {
    if (each.what.find(what) != std::string::npos &&
        each.accounting.find(counting) != std::string::npos) {
      return each.value;
    }
  }
  ADD_FAILURE() << explanation.name << " has no '" << what << "'";
  return NAN;
}

constexpr const char* kFull = "16 bytes";

// Each source rounds to two or three digits.
TEST(Explain, ReproducesWhatItsSourcesState) {
  for (const std::string_view name : explanation_names()) {
    const Explanation explanation = explain(name);
    EXPECT_EQ(explanation.name, name);
    int stated = 0;
    for (const Figure& each : explanation.figures) {
      if (each.stated) {
        EXPECT_NEAR(each.value, *each.stated, 0.03 * *each.stated)
            << name << ": " << each.what;
        ++stated;
      }
    }
    if (name != "interconnect") {
      EXPECT_GT(stated, 0) << name;
    }
    EXPECT_FALSE(explanation.conclusions.empty()) << name;
    EXPECT_THAT(to_text(explanation), HasSubstr(explanation.source));
  }
}

TEST(Explain, Zero) {
  const Explanation zero = explain("zero");
  EXPECT_DOUBLE_EQ(figure(zero, "no sharding"), 120.0);
  EXPECT_NEAR(figure(zero, "ZeRO-1 over 64"), 31.4, 0.05);
  EXPECT_NEAR(figure(zero, "ZeRO-2 over 64 (DeepSpeed)"), 16.6, 0.05);
  EXPECT_NEAR(figure(zero, "ZeRO-3 over 64"), 1.875, 1e-9);
  EXPECT_NEAR(figure(zero, "ZeRO-1 saves"), 4.0, 0.01);
  EXPECT_NEAR(figure(zero, "ZeRO-2 saves"), 8.0, 0.01);
}

TEST(Explain, BytesPerParameter) {
  const Explanation bytes = explain("bytes-per-parameter");
  EXPECT_DOUBLE_EQ(figure(bytes, "in all", "bf16 weight"), 16.0);
  EXPECT_DOUBLE_EQ(figure(bytes, "share of the optimizer"), 0.75);
  EXPECT_DOUBLE_EQ(figure(bytes, "as Accordion stores it"), 16.0);
}

TEST(Explain, Llama70B) {
  const Explanation llama = explain("llama-70b");
  EXPECT_DOUBLE_EQ(figure(llama, "1 GPU", "12 bytes"), 840.0);
  EXPECT_DOUBLE_EQ(figure(llama, "8 GPUs with FSDP", "12 bytes"), 105.0);
  EXPECT_DOUBLE_EQ(figure(llama, "16 GPUs with FSDP", "12 bytes"), 52.5);
  EXPECT_DOUBLE_EQ(figure(llama, "1 GPU", kFull), 1120.0);
  EXPECT_DOUBLE_EQ(figure(llama, "16 GPUs with FSDP", kFull), 70.0);
  EXPECT_GT(figure(llama, "16 GPUs, 4,096 tokens"), 70.0);
}

TEST(Explain, SeventyBillionOn8A100) {
  const Explanation a100 = explain("70b-on-8xa100");
  EXPECT_DOUBLE_EQ(figure(a100, "state", "70B / 8"), 87.5);
  EXPECT_DOUBLE_EQ(figure(a100, "in all", "the source's"), 112.5);
  EXPECT_DOUBLE_EQ(figure(a100, "in all with batch 8"), 102.5);
  EXPECT_DOUBLE_EQ(figure(a100, "state", kFull), 140.0);
  EXPECT_GT(figure(a100, "in all", "the planner"), 140.0);
  const std::string text = to_text(a100);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("GiB")));
  EXPECT_THAT(text, HasSubstr("It fits with "));
}

TEST(Explain, OneBillion) {
  const Explanation one = explain("1b");
  EXPECT_DOUBLE_EQ(figure(one, "replicated, a device"), 16.0);
  EXPECT_DOUBLE_EQ(figure(one, "sharded, a device"), 2.0);
  EXPECT_DOUBLE_EQ(figure(one, "saved"), 0.875);
}

TEST(Explain, TenBillion) {
  const Explanation ten = explain("10b");
  EXPECT_DOUBLE_EQ(figure(ten, "over 8 devices", "weights alone"), 5.0);
  EXPECT_DOUBLE_EQ(figure(ten, "over 8 devices", kFull), 20.0);
}

TEST(Explain, Gpt3) {
  const Explanation gpt3 = explain("gpt-3");
  EXPECT_DOUBLE_EQ(figure(gpt3, "without sharding", "weights alone"), 700.0);
  EXPECT_NEAR(figure(gpt3, "over 1,024", "weights alone"), 0.68, 0.005);
  EXPECT_NEAR(figure(gpt3, "over 1,024", kFull), 2.73, 0.005);
}

TEST(Explain, Llama65B) {
  const Explanation llama = explain("llama-65b");
  EXPECT_DOUBLE_EQ(figure(llama, "without sharding", "weights alone"), 260.0);
  EXPECT_NEAR(figure(llama, "over 64 devices", "weights alone"), 4.06, 0.01);
  EXPECT_NEAR(figure(llama, "over 2,048", "weights alone"), 0.127, 0.001);
  EXPECT_NEAR(figure(llama, "over 2,048", kFull), 0.508, 0.001);
}

TEST(Explain, Units) {
  const Explanation units = explain("units");
  EXPECT_DOUBLE_EQ(figure(units, "over 8", "pieces alone"), 8.75);
  EXPECT_DOUBLE_EQ(figure(units, "one layer of 3B"), 11.75);
  EXPECT_NEAR(figure(units, "a layer of Llama"), 0.856, 0.001);
}

TEST(Explain, Checkpointing) {
  const Explanation checkpointing = explain("checkpointing");
  EXPECT_NEAR(figure(checkpointing, "more computation", "4 parts"), 0.333,
              0.001);
  EXPECT_NEAR(figure(checkpointing, "more computation", "planner"), 0.33, 0.05);
  EXPECT_NEAR(figure(checkpointing, "kept, the layers' inputs", "planner"),
              17.18, 0.01);
}

TEST(Explain, BatchSize) {
  const Explanation batch = explain("batch-size");
  EXPECT_DOUBLE_EQ(figure(batch, "batch 32", "one after"), 0.4);
  EXPECT_NEAR(figure(batch, "batch 256", "one after"), 0.842, 0.001);
  EXPECT_LT(figure(batch, "a GPU, batch 1"), figure(batch, "a GPU, batch 16"));
}

TEST(Explain, Interconnect) {
  const Explanation links = explain("interconnect");
  double previous = 1.1;
  for (const char* const link :
       {"8 H100, NVLink4", "8 H100, PCIe5", "8 H100, PCIe4",
        "8 H100, Ethernet-100", "8 H100, Ethernet-10"}) {
    const double efficiency = figure(links, link);
    EXPECT_LE(efficiency, previous) << link;
    previous = efficiency;
  }
  EXPECT_GT(figure(links, "8 H100, NVLink4"), 0.9);
  EXPECT_LT(previous, 0.2);
}

TEST(Explain, Communication) {
  const Explanation communication = explain("communication");
  EXPECT_DOUBLE_EQ(figure(communication, "FSDP, all-gather"), 2.0);
  EXPECT_NEAR(figure(communication, "ZeRO-3"), 1.5, 0.04);
  EXPECT_NEAR(figure(communication, "ZeRO-1"), 1.0, 0.01);
  EXPECT_NEAR(figure(communication, "ZeRO-2"), 1.0, 0.01);
}

TEST(Explain, NamesTheNearest) {
  expect_message([] { (void)explain("gpt3"); },
                 {"'gpt3' is not known", "nearest is 'gpt-3'"});
}

}  // namespace
}  // namespace accordion::plan
