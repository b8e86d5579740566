// SPDX-License-Identifier: BSD-3-Clause
// What a unit costs in a step, beside its computation: hooks, nodes of the
// graph, actions of the schedule, collectives that move next to nothing.
//
//   executor_benchmark [REPEATS [UNITS…]]      default: 21, 1 10 100 1000
//
// A stack of small linear layers trains sharded over two ranks that the fake
// communicator plays, and plainly, in turn; a row is the median of the repeats
// in processor time. The last columns: making the schedule of the pass for 2
// and for 4,096 ranks, from its recorded markers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "benchmarks/stack.h"
#include "benchmarks/timing.h"

namespace {

using accordion::Unit;
using accordion::benchmarks::median;
using accordion::benchmarks::processor_ms;
using Plain = accordion::benchmarks::PlainStack<torch::nn::Linear>;
using Sharded = Unit<accordion::benchmarks::UnitStack<torch::nn::Linear>>;

constexpr int kWidth = 4;

/// Microseconds of a step.
template <class Net>
double step(Net& net, const torch::Tensor& batch) {
  return 1e3 * processor_ms([&] {
           net->zero_grad(/*set_to_none=*/true);
           net(batch).sum().backward();
         });
}

Sharded sharded_stack(int depth, int world_size) {
  Sharded net(depth, kWidth, kWidth);
  const auto mesh = accordion::DeviceMesh::connect(
      {.rank = 0, .world_size = world_size}, {.backend = "fake"});
  accordion::fully_shard(net, mesh);
  return net;
}

/// Milliseconds to make the schedule of a pass.
double schedule_ms(Sharded& net, const torch::Tensor& batch) {
  step(net, batch);
  const accordion::StepSchedule recorded = accordion::step_schedule(*net);
  const std::vector<accordion::Action> markers =
      accordion::markers_of(recorded);
  return processor_ms(
      [&] { (void)accordion::make_schedule(recorded.units, markers, {}); });
}

void measure(int depth, int repeats) {
  Sharded net = sharded_stack(depth, 2);
  Plain plain(depth, kWidth, kWidth);
  const auto batch = torch::ones({1, kWidth});
  for (int warm_up = 0; warm_up < 3; ++warm_up) {
    step(net, batch);
    step(plain, batch);
  }
  std::vector<double> with, without;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    with.push_back(step(net, batch));
    without.push_back(step(plain, batch));
  }
  Sharded of_many = sharded_stack(depth, 4096);
  std::printf("%6d %12.2f %12.2f %12.2f %14.2f %14.2f\n", depth,
              median(with) / depth, median(without) / depth,
              (median(with) - median(without)) / depth, schedule_ms(net, batch),
              schedule_ms(of_many, batch));
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 21;
  std::vector<int> depths{1, 10, 100, 1000};
  if (argc > 2) {
    depths.clear();
    std::transform(argv + 2, argv + argc, std::back_inserter(depths),
                   [](const char* text) { return std::atoi(text); });
  }
  if (repeats < 1 || *std::min_element(depths.begin(), depths.end()) < 1) {
    std::fprintf(stderr, "usage: executor_benchmark [REPEATS [UNITS…]]\n");
    return 2;
  }
  torch::manual_seed(1);
  at::set_num_threads(1);
  std::printf("%6s %12s %12s %12s %14s %14s\n", "units", "us a unit", "plain",
              "the cost", "schedule ms", "of 4096 ranks");
  for (const int depth : depths) {
    measure(depth, repeats);
  }
  return 0;
}
