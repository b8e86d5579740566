// SPDX-License-Identifier: BSD-3-Clause
// The first step is recorded, later steps replay its schedule.
#include <algorithm>

#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/logging_communicator.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

void train_step(const DeviceMesh& mesh, Net& net, int step) {
  net->zero_grad();
  const auto mine = [&](const torch::Tensor& rows) {
    return testing::rows_of(rows, mesh.rank(), mesh.world_size());
  };
  testing::loss_of(net(mine(testing::batch_of(step, 4))),
                   mine(testing::target_of(step, 4)))
      .backward();
}

/// Shards a seeded net on each of `world` threads and calls
/// body(mesh, net, log of rank 0's communicator).
void on_sharded(
    int world, const FsdpOptions& options,
    const std::function<void(const DeviceMesh&, Net&,
                             testing::LoggingCommunicator&)>& body) {
  std::vector<Net> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<Net>());
  }
  on_ranks(world, [&](const DeviceMesh& threads) {
    const auto logging = std::make_shared<testing::LoggingCommunicator>(
        std::shared_ptr<Communicator>(std::make_shared<DeviceMesh>(threads),
                                      &threads.world()));
    const auto mesh = DeviceMesh::over(logging);
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, options);
    logging->log.clear();
    body(mesh, net, *logging);
  });
}

std::vector<std::string> without(std::vector<std::string> log,
                                 std::initializer_list<std::string> entries) {
  for (const std::string& entry : entries) {
    std::erase(log, entry);
  }
  return log;
}

std::vector<std::string> without_releases(std::vector<std::string> log) {
  return without(std::move(log), {"release"});
}

TEST(ScheduleReplay, FirstStepRunsOnDemand) {
  on_sharded(2, {.prefetch = 1}, [](auto& mesh, Net& net, auto& logging) {
    EXPECT_TRUE(step_schedule(*net).empty());
    train_step(mesh, net, 0);
    const std::vector<std::string> expected = {
        "gather (root)", "await gather (root)",  // kept
        "gather block0", "await gather block0",  // forward
        "gather block1", "await gather block1",  //
        "gather block2", "await gather block2",  //
        "reduce (root)", "await reduce (root)",  // the head's, first of all
        "gather block2", "await gather block2",  // backward
        "reduce block2", "await reduce block2",  //
        "gather block1", "await gather block1",  //
        "reduce block1", "await reduce block1",  //
        "gather block0", "await gather block0",  //
        "reduce block0", "await reduce block0"};
    EXPECT_EQ(
        without(logging.log, {"release", "gather turn", "await gather turn"}),
        expected);
    // Ranks agree on each marker, and on the end.
    const auto turns =
        std::count(logging.log.begin(), logging.log.end(), "gather turn");
    EXPECT_EQ(turns, 1 + std::ssize(markers_of(step_schedule(*net))));
    logging.log.clear();
    train_step(mesh, net, 1);
    EXPECT_EQ(std::count(logging.log.begin(), logging.log.end(), "gather turn"),
              0);
  });
}

TEST(ScheduleReplay, LaterStepsPrefetchAndDelayReductions) {
  on_sharded(2, {.prefetch = 1}, [](auto& mesh, Net& net, auto& logging) {
    train_step(mesh, net, 0);
    for (int step = 1; step < 4; ++step) {
      logging.log.clear();
      train_step(mesh, net, step);
      const std::vector<std::string> log = without_releases(logging.log);
      const auto position = [&log](const std::string& entry) {
        return std::find(log.begin(), log.end(), entry) - log.begin();
      };
      // block1 is on its way before block0 computes, and so on.
      EXPECT_LT(position("gather block1"), position("await gather block1"));
      EXPECT_LT(position("gather block0"), position("gather block1"));
      EXPECT_LT(position("gather block1"), position("gather block2"));
      // block2 is the first of backward: its gather serves both passes.
      EXPECT_EQ(std::count(log.begin(), log.end(), "gather block2"), 1);
      EXPECT_EQ(std::count(log.begin(), log.end(), "gather block1"), 2);
      // The reduction of block2 is read while block1 has computed.
      EXPECT_LT(position("reduce block1"), position("await reduce block2"));
      EXPECT_EQ(validate(step_schedule(*net)), "");
    }
  });
}

TEST(ScheduleReplay, CountsAndBytesAreTheSchedules) {
  on_sharded(3, {}, [](auto& mesh, Net& net, auto& /*logging*/) {
    train_step(mesh, net, 0);
    train_step(mesh, net, 1);
    const StepSchedule schedule = step_schedule(*net);
    std::int64_t gathers = 0, gathered = 0, reductions = 0, reduced = 0;
    for (const Action& action : schedule.actions) {
      const ScheduledUnit& unit =
          schedule.units[static_cast<std::size_t>(action.unit)];
      if (action.kind == ActionKind::Unshard) {
        ++gathers;
        gathered += unit.unsharded_bytes;
      } else if (action.kind == ActionKind::Reduce) {
        ++reductions;
        reduced += unit.gradient_bytes;
      }
    }
    const CommCounters before = mesh.world().counters();
    train_step(mesh, net, 2);
    const CommCounters& after = mesh.world().counters();
    const auto calls = [&](CommOp op) {
      return after.calls_of(op) - before.calls_of(op);
    };
    const auto bytes = [&](CommOp op) {
      return after.bytes_of(op) - before.bytes_of(op);
    };
    EXPECT_EQ(gathers, 1 + 3 + 2);  // root, forward, backward less the last
    EXPECT_EQ(reductions, 4);
    EXPECT_EQ(calls(CommOp::AllGather), gathers);
    EXPECT_EQ(bytes(CommOp::AllGather), gathered);
    EXPECT_EQ(calls(CommOp::ReduceScatter), reductions);
    EXPECT_EQ(bytes(CommOp::ReduceScatter), reduced);
    EXPECT_EQ(calls(CommOp::Allocate), 0);
  });
}

TEST(ScheduleReplay, NoShardOnlyAllReduces) {
  on_sharded(2, {.strategy = Strategy::NoShard},
             [](auto& mesh, Net& net, auto& logging) {
               train_step(mesh, net, 0);
               logging.log.clear();
               train_step(mesh, net, 1);
               const auto log = without_releases(logging.log);
               EXPECT_EQ(std::count_if(log.begin(), log.end(),
                                       [](const std::string& entry) {
                                         return entry.starts_with("all-reduce");
                                       }),
                         4);
               EXPECT_EQ(log.size(), 8U);  // each is awaited, nothing else
             });
}

TEST(ScheduleReplay, AllocatesNothingAfterTheSecondStep) {
  on_sharded(2, {.prefetch = 2}, [](auto& mesh, Net& net, auto& /*logging*/) {
    train_step(mesh, net, 0);
    train_step(mesh, net, 1);
    const auto allocated = sharded_bytes(*net);
    const auto calls = mesh.world().counters().calls_of(CommOp::Allocate);
    for (int step = 2; step < 6; ++step) {
      train_step(mesh, net, step);
    }
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::Allocate), calls);
    EXPECT_EQ(sharded_bytes(*net).parameter_slots, allocated.parameter_slots);
    EXPECT_EQ(sharded_bytes(*net).gradient_slots, allocated.gradient_slots);
  });
}

TEST(ScheduleReplay, HoldsTheBytesThatTheLayoutSays) {
  on_sharded(4, {}, [](auto& mesh, Net& net, auto& /*logging*/) {
    train_step(mesh, net, 0);
    train_step(mesh, net, 1);
    std::int64_t shards = 0, numel = 0;
    for (const FlatShard& shard : flat_shards(*net)) {
      shards += static_cast<std::int64_t>(shard.parameters.nbytes());
    }
    for (const auto& parameter : seeded<Net>()->parameters()) {
      numel += parameter.numel();
    }
    const ShardedBytes bytes = sharded_bytes(*net);
    EXPECT_EQ(bytes.parameters, shards);
    EXPECT_EQ(bytes.gradients, shards);
    // Four units: a quarter each, and the padding of [Note: padding].
    EXPECT_GE(bytes.parameters, numel * 4 / 4);
    EXPECT_LE(bytes.parameters, numel * 4 / 4 * 101 / 100 + 4 * 64);
    std::int64_t slots = 0;
    for (const std::int64_t slot : step_schedule(*net).parameter_slots) {
      slots += slot;
    }
    EXPECT_EQ(bytes.parameter_slots, slots);
  });
}

TEST(ScheduleReplay, FollowsAnEditedSchedule) {
  on_sharded(2, {.prefetch = 0}, [](auto& mesh, Net& net, auto& logging) {
    train_step(mesh, net, 0);
    StepSchedule schedule = step_schedule(*net);
    // Moves the reduction of block2 (unit 3) to the end of the step.
    const auto is = [](ActionKind kind, int unit) {
      return [kind, unit](const Action& action) {
        return action.kind == kind && action.unit == unit;
      };
    };
    auto& actions = schedule.actions;
    const auto reduce =
        std::find_if(actions.begin(), actions.end(), is(ActionKind::Reduce, 3));
    actions.erase(reduce);
    const auto finish = std::find_if(actions.begin(), actions.end(),
                                     is(ActionKind::FinishReduce, 3));
    actions.erase(finish);
    actions.push_back({ActionKind::Reduce, 3, -1});
    actions.push_back({ActionKind::FinishReduce, 3, -1});
    // Its slot is in use until then: every gradient gets a slot of its own.
    int slot = 0;
    for (Action& action : actions) {
      if (action.kind == ActionKind::Backward) {
        action.slot = slot++;
      }
    }
    std::int64_t most = 0;
    for (const ScheduledUnit& unit : schedule.units) {
      most = std::max(most, unit.gradient_bytes);
    }
    schedule.gradient_slots.assign(static_cast<std::size_t>(slot), most);
    ASSERT_EQ(validate(schedule), "") << to_table(schedule);

    set_step_schedule(*net, schedule);
    logging.log.clear();
    train_step(mesh, net, 1);
    EXPECT_EQ(logging.log.back(), "await reduce block2");
    EXPECT_EQ(step_schedule(*net), schedule) << "the executor made its own";
  });
}

TEST(ScheduleReplay, RejectsAScheduleThatCannotBeFollowed) {
  on_sharded(2, {}, [](auto& mesh, Net& net, auto& /*logging*/) {
    train_step(mesh, net, 0);
    StepSchedule schedule = step_schedule(*net);
    std::erase_if(schedule.actions, [](const Action& action) {
      return action.kind == ActionKind::Unshard && action.unit == 2;
    });
    const auto message = testing::message_of<c10::ValueError>(
        [&] { set_step_schedule(*net, schedule); });
    EXPECT_NE(message.find("block1"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace accordion
