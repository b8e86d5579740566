// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/nonfinite_output.h"

#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace_text.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;
using testing::UnitNet;

constexpr int kBatchRows = 6;

TEST(NonfiniteOutput, TheFirstUnitInTheOrderOfCallsIsNamedOnEveryRank) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh);
    const auto forward = [&] {
      const torch::NoGradGuard no_grad;
      net(testing::batch_of(0, kBatchRows));
    };
    EXPECT_FALSE(first_nonfinite_output(*net, forward));
    for (const LocalParameter& local : local_parameters(*net)) {
      if (local.name == "block1.down.bias" && local.begin == 0 &&
          local.end > 0) {
        local.piece[0] = std::nan("");
      }
    }
    const auto found = first_nonfinite_output(*net, forward);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->unit, "block1");
    EXPECT_EQ(found->rank, 0);
  });
}

TEST(NonfiniteOutput, ARankWhoseDataIsAtFaultIsNamed) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh);
    const auto found = first_nonfinite_output(*net, [&] {
      const torch::NoGradGuard no_grad;
      auto batch = testing::batch_of(0, kBatchRows);
      if (mesh.rank() == 1) {
        batch[0][0] = INFINITY;
      }
      net(batch);
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->unit, "block0");
    EXPECT_EQ(found->rank, 1);
  });
}

TEST(LastActions, NamesUnitsAndTimesOldestFirst) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh);
    const auto trace = std::make_shared<StepTrace>();
    set_step_trace(*net, trace);
    trace->begin_step();
    net(testing::batch_of(0, kBatchRows)).sum().backward();
    const auto lines = last_actions(*net, *trace, 5);
    ASSERT_EQ(lines.size(), 5U);
    EXPECT_NE(lines.back().find("await reduce of 'block0'"), std::string::npos)
        << lines.back();
    EXPECT_NE(lines.back().find(" ms"), std::string::npos);
    EXPECT_EQ(last_actions(*net, *trace, 100000).size(), trace->spans().size());
  });
}

}  // namespace
}  // namespace accordion
