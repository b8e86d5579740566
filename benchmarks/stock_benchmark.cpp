// SPDX-License-Identifier: BSD-3-Clause
// A model of LibTorch's own modules, sharded and not: what the library costs
// where nothing of the model is ours.
//
//   accordion run --nproc 2 -- stock_benchmark [STEPS]      default: 10
//
// A stack of nn::TransformerEncoderLayer trains in fp32 in three ways, which
// take turns within the same processes: sharded over all ranks; every rank for
// itself, as a mesh of one; every rank for itself, without the library. Rank 0
// prints medians of its steps.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include "accordion/comm/local_meshes.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/optim/adamw.h"
#include "benchmarks/stack.h"
#include "benchmarks/timing.h"

namespace {

using accordion::benchmarks::median;
using Layer = torch::nn::TransformerEncoderLayer;
using Plain = accordion::benchmarks::PlainStack<Layer>;
using Sharded = accordion::Unit<accordion::benchmarks::UnitStack<Layer>>;

constexpr int kLayers = 6;
constexpr int kWidth = 512;
constexpr int kTokens = 128;
constexpr int kBatch = 8;

template <class Net, class Optimizer>
void train_step(Net& net, Optimizer& optimizer, const torch::Tensor& batch) {
  optimizer.zero_grad();
  net(batch).square().mean().backward();
  optimizer.step();
}

struct Way {
  const char* name;
  std::function<void()> step;
  std::vector<double> ms = {};
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 10;
  if (steps < 1) {
    std::fprintf(stderr, "usage: stock_benchmark [STEPS]\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto mesh = accordion::DeviceMesh::from_environment();
  const auto alone =
      accordion::make_local_meshes({{"shard", 1}}, std::chrono::minutes(1));
  torch::manual_seed(mesh.rank());
  const auto batch = torch::randn({kTokens, kBatch, kWidth});

  const auto layer = torch::nn::TransformerEncoderLayerOptions(kWidth, 8)
                         .dim_feedforward(4 * kWidth)
                         .dropout(0.0);
  torch::manual_seed(1);
  Sharded sharded(kLayers, layer);
  accordion::fully_shard(sharded, mesh);
  accordion::AdamW sharded_optimizer(*sharded, {.lr = 1e-4});
  Sharded whole(kLayers, layer);
  accordion::fully_shard(whole, alone.front());
  accordion::AdamW whole_optimizer(*whole, {.lr = 1e-4});
  Plain plain(kLayers, layer);
  torch::optim::AdamW plain_optimizer(plain->parameters(), 1e-4);

  std::vector<Way> ways;
  ways.push_back(
      {"sharded", [&] { train_step(sharded, sharded_optimizer, batch); }});
  ways.push_back(
      {"a mesh of one", [&] { train_step(whole, whole_optimizer, batch); }});
  ways.push_back(
      {"plain LibTorch", [&] { train_step(plain, plain_optimizer, batch); }});
  constexpr int kWarmUp = 3;
  for (int step = 0; step < kWarmUp + steps; ++step) {
    for (Way& way : ways) {
      mesh.world().barrier("step");
      const auto start = std::chrono::steady_clock::now();
      way.step();
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      if (step >= kWarmUp) {
        way.ms.push_back(took.count());
      }
    }
  }
  if (mesh.rank() == 0) {
    const double reference = median(ways.front().ms);
    std::printf("%-16s %10s %10s %10s %10s\n", "ms a step", "median", "least",
                "most", "x sharded");
    for (const Way& way : ways) {
      std::printf("%-16s %10.1f %10.1f %10.1f %10.2f\n", way.name,
                  median(way.ms),
                  *std::min_element(way.ms.begin(), way.ms.end()),
                  *std::max_element(way.ms.begin(), way.ms.end()),
                  median(way.ms) / reference);
    }
  }
  return 0;
}
