// SPDX-License-Identifier: BSD-3-Clause
// Random modules, meshes and options: the gradients of a step are those of a
// single process. A failure prints its seed; ACCORDION_SEED repeats it alone.
#include <cstdlib>
#include <random>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

constexpr unsigned kFirstSeed = 20261128;
constexpr int kPrograms = 60;
constexpr int kRowsEach = 2;

using Random = std::mt19937;

int below(Random& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}
bool one_in(Random& random, int n) {
  return below(random, n) == 0;
}

struct LayerImpl : torch::nn::Cloneable<LayerImpl> {
  LayerImpl(int features, int hidden, torch::Tensor shared)
      : features(features), hidden(hidden), shared(std::move(shared)) {
    reset();
  }
  void reset() override {
    up = register_parameter("up", torch::randn({hidden, features}) * 0.3);
    down = register_parameter("down", torch::randn({features, hidden}) * 0.3);
    gain = register_parameter("gain", torch::ones({}));
    if (shared.defined()) {
      register_parameter("shared", shared);
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    auto y = torch::linear(torch::tanh(torch::linear(x, up)), down) * gain;
    return x + (shared.defined() ? y * shared : y);
  }
  int features, hidden;
  torch::Tensor shared, up, down, gain;
};
TORCH_MODULE(Layer);

/// Layers of random sizes, some of which share a vector with the root, called
/// in a random order with repetitions and omissions.
template <template <class> class Wrap>
struct RandomNetImpl : torch::nn::Module {
  explicit RandomNetImpl(Random random) {
    features = 1 + below(random, 9);
    shared = register_parameter("shared", torch::ones({features}));
    const int num_layers = 1 + below(random, 5);
    for (int i = 0; i < num_layers; ++i) {
      const bool shares = one_in(random, 3);
      layers.push_back(this->register_module(
          "layer" + std::to_string(i),
          Wrap<Layer>(features, 1 + below(random, 12),
                      shares ? shared : torch::Tensor())));
      if (one_in(random, 4)) {
        layers.back()->up.set_requires_grad(false);
      }
      if (one_in(random, 6)) {
        layers.back()->down.set_requires_grad(false);
        layers.back()->gain.set_requires_grad(false);
      }
    }
    const int num_calls = 1 + below(random, 6);
    for (int i = 0; i < num_calls; ++i) {
      route.push_back(below(random, num_layers));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const int i : route) {
      x = layers[static_cast<std::size_t>(i)](x);
    }
    return x * shared;
  }
  int features = 0;
  torch::Tensor shared;
  std::vector<Wrap<Layer>> layers;
  std::vector<int> route;
};
struct PlainRandomNet : torch::nn::ModuleHolder<RandomNetImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitRandomNet : torch::nn::ModuleHolder<RandomNetImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

/// The rows of one rank in one microbatch.
torch::Tensor rows(int features, int step, int microbatch, int rank) {
  const auto row = torch::arange(kRowsEach, torch::kFloat).unsqueeze(1);
  const auto column = torch::arange(features, torch::kFloat).unsqueeze(0);
  return torch::sin(row * 1.3 + column * 0.7 + step * 0.31 + microbatch * 0.17 +
                    rank * 0.53);
}

struct Program {
  std::vector<MeshAxis> axes;
  FsdpOptions options;
  int microbatches = 1;
  std::string text;
};

Program random_program(Random& random) {
  Program program;
  const bool hybrid = one_in(random, 3);
  const int shards = 1 + below(random, hybrid ? 2 : 4);
  const int replicas = hybrid ? 2 : 1;
  program.axes = {{"shard", shards}};
  if (hybrid) {
    program.axes.insert(program.axes.begin(), {"replicate", replicas});
  }
  FsdpOptions& options = program.options;
  options.strategy = static_cast<Strategy>(below(random, 4));
  options.prefetch = below(random, 4);
  options.prefetch_bytes = one_in(random, 3) ? 256 : 0;
  if (one_in(random, 3)) {
    options.reshard_after_forward = one_in(random, 2);
  }
  if (options.strategy == Strategy::FullShard && shards == 4) {
    options.reshard_to_ranks = below(random, 3);
  }
  if (one_in(random, 2)) {
    options.accumulation =
        static_cast<Accumulation>(below(random, replicas > 1 ? 3 : 2));
  }
  if (one_in(random, 2)) {
    options.keep_parameters_across_microbatches = one_in(random, 2);
  }
  options.min_shard_numel = one_in(random, 3) ? 10 : 0;
  if (one_in(random, 3)) {
    options.wrap = wrap_min_numel(40);
  }
  program.microbatches = 1 + below(random, 4);
  if (one_in(random, 3)) {
    options.activation_checkpointing =
        ActivationCheckpointing{.every = 1 + below(random, 2)};
  }
  program.text = c10::str(
      shards, " shards, ", replicas, " replicas, strategy ",
      static_cast<int>(options.strategy), ", prefetch ", options.prefetch,
      ", microbatches ", program.microbatches, ", checkpointed every ",
      options.activation_checkpointing ? options.activation_checkpointing->every
                                       : 0);
  return program;
}

/// Trains nothing: the gradients of three steps, each of several microbatches.
void check_program(unsigned seed) {
  Random random(seed);
  const Program program = random_program(random);
  SCOPED_TRACE(c10::str("seed ", seed, ": ", program.text));
  auto plain = testing::seeded<PlainRandomNet>(random);
  auto meshes = make_local_meshes(program.axes, std::chrono::seconds(20));
  const int world = static_cast<int>(meshes.size());
  std::vector<Unit<UnitRandomNet>> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(testing::seeded<Unit<UnitRandomNet>>(random));
  }
  constexpr int kSteps = 3;
  std::vector<std::map<std::string, torch::Tensor>> expected(kSteps);
  for (int step = 0; step < kSteps; ++step) {
    plain->zero_grad();
    for (int k = 0; k < program.microbatches; ++k) {
      for (int rank = 0; rank < world; ++rank) {
        (plain(rows(plain->features, step, k, rank)).square().sum() / world)
            .backward();
      }
    }
    for (const auto& item : plain->named_parameters()) {
      if (item.value().requires_grad()) {
        const auto& gradient = item.value().grad();
        expected[static_cast<std::size_t>(step)][item.key()] =
            gradient.defined() ? gradient.clone()
                               : torch::zeros_like(item.value());
      }
    }
  }
  testing::on_meshes(std::move(meshes), [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, program.options);
    for (int step = 0; step < kSteps; ++step) {
      net->zero_grad();
      for (int k = 0; k < program.microbatches; ++k) {
        set_is_last_backward(*net, k == program.microbatches - 1);
        const auto loss =
            net(rows(net->features, step, k, mesh.rank())).square().sum();
        if (loss.requires_grad()) {
          loss.backward();
        }
      }
      EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
      EXPECT_EQ(sharded_bytes(*net).whole_gradients, 0);
      for (const LocalParameter& parameter : local_parameters(*net)) {
        const auto want =
            expected[static_cast<std::size_t>(step)].find(parameter.name);
        if (want == expected[static_cast<std::size_t>(step)].end()) {
          EXPECT_FALSE(parameter.requires_grad) << parameter.name;
          continue;
        }
        const auto got = full_gradient(*net, parameter.name);
        EXPECT_TRUE(torch::allclose(got, want->second, 1e-4, 1e-5))
            << parameter.name << ", step " << step << ", rank " << mesh.rank()
            << ", largest difference "
            << (got - want->second).abs().max().item<double>();
      }
    }
  });
}

TEST(FsdpProperty, GradientsOfRandomProgramsAreThoseOfASingleProcess) {
  if (const char* seed = std::getenv("ACCORDION_SEED")) {
    check_program(static_cast<unsigned>(std::stoul(seed)));
    return;
  }
  for (unsigned i = 0; i < kPrograms && !HasFailure(); ++i) {
    check_program(kFirstSeed + i);
  }
}

}  // namespace
}  // namespace accordion
