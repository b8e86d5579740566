// SPDX-License-Identifier: BSD-3-Clause
// What a step of several microbatches communicates and holds, by strategy: the
// table of docs/algorithms.md.
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::batch_of;
using testing::on_meshes;
using testing::rows_of;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

constexpr int kMicrobatches = 4;
constexpr int kUnits = 4;  // the root and three blocks
constexpr int kMicrobatchRows = 16;

/// Collectives of one rank, over both axes of its mesh.
struct Calls {
  std::int64_t gathers = 0, reductions = 0, all_reduces = 0;
  std::int64_t gathered_bytes = 0, reduced_bytes = 0;
};

Calls calls_of(const DeviceMesh& mesh) {
  Calls calls;
  std::vector<const Communicator*> seen;
  for (const MeshAxis& axis : mesh.axes()) {
    const Communicator& c = mesh.communicator(axis.name);
    if (std::find(seen.begin(), seen.end(), &c) == seen.end()) {
      seen.push_back(&c);
      const CommCounters& counters = c.counters();
      calls.gathers += counters.calls_of(CommOp::AllGather);
      calls.gathered_bytes += counters.bytes_of(CommOp::AllGather);
      calls.reductions += counters.calls_of(CommOp::ReduceScatter);
      calls.reduced_bytes += counters.bytes_of(CommOp::ReduceScatter);
      calls.all_reduces += counters.calls_of(CommOp::AllReduce);
    }
  }
  return calls;
}

Calls operator-(const Calls& a, const Calls& b) {
  return {a.gathers - b.gathers, a.reductions - b.reductions,
          a.all_reduces - b.all_reduces, a.gathered_bytes - b.gathered_bytes,
          a.reduced_bytes - b.reduced_bytes};
}

void backward(const DeviceMesh& mesh, Net& net, int step, int k) {
  const auto rows = rows_of(batch_of(step, kMicrobatchRows), k, kMicrobatches);
  (net(rows_of(rows, mesh.rank(), mesh.world_size())).square().mean() /
   kMicrobatches)
      .backward();
}

/// What a rank holds at the moments of a step.
struct Held {
  ShardedBytes after_forward = {}, between_microbatches = {}, at_rest = {};
};

Held accumulate(const DeviceMesh& mesh, Net& net, int step) {
  Held held;
  net->zero_grad();
  for (int k = 0; k < kMicrobatches; ++k) {
    set_is_last_backward(*net, k == kMicrobatches - 1);
    if (k == 1) {
      held.between_microbatches = sharded_bytes(*net);
    }
    backward(mesh, net, step, k);
  }
  held.at_rest = sharded_bytes(*net);
  // Between forward and backward, in a pass of its own.
  const auto output = net(batch_of(step, 4));
  held.after_forward = sharded_bytes(*net);
  output.sum().backward();
  return held;
}

struct Expected {
  std::int64_t gathers = 0;
  std::int64_t reductions = 0;
  std::int64_t all_reduces = 0;
};

/// Trains steps of four microbatches on 2 shards (x replicas) and calls
/// check(held, calls of a step) for one that follows the schedule.
void check_step_once(
    int replicas, const FsdpOptions& options,
    const std::function<void(Net&, const Held&, const Calls&)>& check) {
  std::vector<MeshAxis> axes{{"shard", 2}};
  if (replicas > 1) {
    axes.insert(axes.begin(), {"replicate", replicas});
  }
  std::vector<Net> nets;
  for (int rank = 0; rank < 2 * replicas; ++rank) {
    nets.push_back(seeded<Net>());
  }
  on_meshes(make_local_meshes(axes, std::chrono::seconds(30)),
            [&](const DeviceMesh& mesh) {
              Net& net = nets[static_cast<std::size_t>(mesh.rank())];
              fully_shard(net, mesh, options);
              for (int step = 0; step < 3; ++step) {
                accumulate(mesh, net, step);
              }
              const Held held = accumulate(mesh, net, 3);
              net->zero_grad();
              const Calls before = calls_of(mesh);
              for (int k = 0; k < kMicrobatches; ++k) {
                set_is_last_backward(*net, k == kMicrobatches - 1);
                backward(mesh, net, 4, k);
              }
              const Calls calls = calls_of(mesh) - before;
              check(net, held, calls);
            });
}

/// The same with slots and in place, which communicate alike.
void check_step(
    int replicas, FsdpOptions options,
    const std::function<void(Net&, const Held&, const Calls&)>& check) {
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place ? "in place" : "with slots");
    options.gather_in_place = in_place;
    check_step_once(replicas, options, check);
  }
}

/// Bytes of all units' whole parameters, and of the root's and last block's.
struct Whole {
  std::int64_t all = 0, root = 0, last = 0;
};
Whole sum_of_units(const Net& net,
                   std::int64_t (*bytes)(const ScheduledUnit&)) {
  Whole whole;
  const StepSchedule schedule = step_schedule(*net);
  for (const ScheduledUnit& unit : schedule.units) {
    whole.all += bytes(unit);
  }
  whole.root = bytes(schedule.units.front());
  whole.last = bytes(schedule.units.back());
  return whole;
}
Whole whole_bytes(const Net& net) {
  return sum_of_units(
      net, [](const ScheduledUnit& unit) { return unit.unsharded_bytes; });
}
/// What they take while they are whole.
Whole slot_bytes(const Net& net) {
  return sum_of_units(net, [](const ScheduledUnit& unit) {
    return unit.parameter_slot_bytes();
  });
}

void expect_calls(const Calls& calls, const Expected& expected) {
  EXPECT_EQ(calls.gathers, expected.gathers);
  EXPECT_EQ(calls.reductions, expected.reductions);
  EXPECT_EQ(calls.all_reduces, expected.all_reduces);
}

constexpr int K = kMicrobatches;
// The root is gathered once a pass, and so is the last block: its gather
// serves forward and backward.
constexpr int kGathersOfAPass = 2 * kUnits - 2;

TEST(Accumulation, FullShardGathersTwiceAndReducesEachMicrobatch) {
  check_step(1, {}, [](Net& net, const Held& held, const Calls& calls) {
    expect_calls(calls,
                 {.gathers = K * kGathersOfAPass, .reductions = K * kUnits});
    const Whole whole = whole_bytes(net);
    const Whole slots = slot_bytes(net);
    EXPECT_EQ(held.at_rest.unsharded_parameters, 0);
    EXPECT_EQ(held.after_forward.unsharded_parameters, slots.root + slots.last);
    EXPECT_EQ(held.between_microbatches.unsharded_parameters, 0);
    EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
    EXPECT_EQ(calls.reduced_bytes, K * whole.all);
    EXPECT_EQ(calls.gathered_bytes,
              K * (2 * whole.all - whole.root - whole.last));
  });
}

TEST(Accumulation, ShardGradOpKeepsParametersFromForwardToBackward) {
  check_step(
      1, {.strategy = Strategy::ShardGradOp},
      [](Net& net, const Held& held, const Calls& calls) {
        expect_calls(calls, {.gathers = K * kUnits, .reductions = K * kUnits});
        const Whole whole = whole_bytes(net);
        EXPECT_EQ(held.at_rest.unsharded_parameters, 0);
        EXPECT_EQ(held.after_forward.unsharded_parameters, slot_bytes(net).all);
        EXPECT_EQ(held.between_microbatches.unsharded_parameters, 0);
        EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
        EXPECT_EQ(calls.gathered_bytes, K * whole.all);
      });
}

TEST(Accumulation, ShardGradOpMayGatherOnceAStep) {
  check_step(1,
             {.strategy = Strategy::ShardGradOp,
              .keep_parameters_across_microbatches = true},
             [](Net& net, const Held& held, const Calls& calls) {
               expect_calls(calls,
                            {.gathers = kUnits, .reductions = K * kUnits});
               EXPECT_EQ(held.between_microbatches.unsharded_parameters,
                         slot_bytes(net).all);
               EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
               EXPECT_EQ(held.at_rest.unsharded_parameters, 0);
             });
}

TEST(Accumulation, ShardOptimizerGathersAndReducesOnceAStep) {
  check_step(1, {.strategy = Strategy::ShardOptimizer},
             [](Net& net, const Held& held, const Calls& calls) {
               expect_calls(calls, {.gathers = kUnits, .reductions = kUnits});
               const Whole whole = whole_bytes(net);
               EXPECT_EQ(held.between_microbatches.unsharded_parameters,
                         slot_bytes(net).all);
               EXPECT_EQ(held.between_microbatches.whole_gradients, whole.all)
                   << "fp32 gradients of fp32 parameters";
               EXPECT_EQ(held.at_rest.unsharded_parameters, 0);
               EXPECT_EQ(held.at_rest.whole_gradients, 0);
             });
}

TEST(Accumulation, ShardOptimizerHoldsWholeGradientsInReduceDtype) {
  check_step(
      1,
      {.strategy = Strategy::ShardOptimizer,
       .precision = {.param_dtype = torch::kBFloat16,
                     .reduce_dtype = torch::kFloat}},
      [](Net& net, const Held& held, const Calls& calls) {
        const Whole whole = whole_bytes(net);
        // Slots are aligned, so twice the bytes of bf16 at least less
        // the alignment of each unit's two slots.
        EXPECT_NEAR(
            static_cast<double>(held.between_microbatches.whole_gradients),
            2.0 * static_cast<double>(whole.all), kUnits * 128.0);
        EXPECT_EQ(calls.reductions, kUnits);
      });
}

TEST(Accumulation, NoShardAllReduces) {
  check_step(1, {.strategy = Strategy::NoShard},
             [](Net&, const Held& held, const Calls& calls) {
               expect_calls(calls, {.all_reduces = K * kUnits});
               EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
             });
  check_step(
      1,
      {.strategy = Strategy::NoShard, .accumulation = Accumulation::Unsharded},
      [](Net&, const Held&, const Calls& calls) {
        expect_calls(calls, {.all_reduces = kUnits});
      });
}

TEST(Accumulation, HybridReducesInsideAndAllReducesAcross) {
  check_step(2, {}, [](Net&, const Held& held, const Calls& calls) {
    expect_calls(calls, {.gathers = K * kGathersOfAPass,
                         .reductions = K * kUnits,
                         .all_reduces = K * kUnits});
    EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
  });
}

TEST(Accumulation, HybridMayPutTheAllReduceOff) {
  check_step(2, {.accumulation = Accumulation::DeferredAllReduce},
             [](Net&, const Held& held, const Calls& calls) {
               expect_calls(calls, {.gathers = K * kGathersOfAPass,
                                    .reductions = K * kUnits,
                                    .all_reduces = kUnits});
               EXPECT_EQ(held.between_microbatches.whole_gradients, 0);
             });
}

TEST(Accumulation, HpzGathersForBackwardAmongNeighboursOnly) {
  std::vector<Net> nets;
  for (int rank = 0; rank < 4; ++rank) {
    nets.push_back(seeded<Net>());
  }
  on_meshes(make_local_meshes({{"shard", 4}}, std::chrono::seconds(30)),
            [&](const DeviceMesh& mesh) {
              Net& net = nets[static_cast<std::size_t>(mesh.rank())];
              fully_shard(net, mesh, {.reshard_to_ranks = 2});
              for (int step = 0; step < 3; ++step) {
                backward(mesh, net, step, 0);
              }
              const auto pair = mesh.neighbours("shard", 2);
              const auto all = calls_of(mesh);
              const auto among = pair->counters().calls_of(CommOp::AllGather);
              backward(mesh, net, 3, 0);
              EXPECT_EQ((calls_of(mesh) - all).gathers, kUnits) << "forward";
              EXPECT_EQ(pair->counters().calls_of(CommOp::AllGather) - among,
                        kUnits - 2)
                  << "backward, less the root and the last block";
              EXPECT_GT(sharded_bytes(*net).whole_copies, 0);
            });
}

}  // namespace
}  // namespace accordion
