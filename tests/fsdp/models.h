// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mutex>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "accordion/module/unit.h"

namespace accordion::testing {

/// Odd sizes: no dim divides by a world size of the tests.
inline constexpr int kFeatures = 7;
inline constexpr int kHidden = 13;

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    up = register_module("up", torch::nn::Linear(kFeatures, kHidden));
    down = register_module("down", torch::nn::Linear(kHidden, kFeatures));
  }
  torch::Tensor forward(torch::Tensor x) {
    return x + down(torch::tanh(up(x)));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

/// Three blocks that are units, and a head that belongs to the root.
template <template <class> class Wrap>
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int num_blocks = 3) {
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(
          this->register_module("block" + std::to_string(i), Wrap<Block>()));
    }
    head = this->register_module("head", torch::nn::Linear(kFeatures, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) {
      x = block(x);
    }
    return head(x);
  }
  std::vector<Wrap<Block>> blocks;
  torch::nn::Linear head{nullptr};
};

template <class Holder>
using Plain = Holder;

struct PlainNet : torch::nn::ModuleHolder<NetImpl<Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitNet : torch::nn::ModuleHolder<NetImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

/// A net whose values depend on nothing but the seed. Ranks that are threads
/// share LibTorch's generator: one builds at a time.
template <class Holder, class... Args>
Holder seeded(Args&&... args) {
  static std::mutex generator;
  const std::lock_guard lock(generator);
  torch::manual_seed(11);
  return Holder(std::forward<Args>(args)...);
}

/// The global batch of a step: row i is a formula of step and i.
inline torch::Tensor batch_of(int step, int rows) {
  const auto row = torch::arange(rows, torch::kFloat).unsqueeze(1);
  const auto column = torch::arange(kFeatures, torch::kFloat).unsqueeze(0);
  return torch::sin(row * 1.7 + column * 0.9 + step * 0.31);
}
inline torch::Tensor target_of(int step, int rows) {
  return torch::cos(batch_of(step, rows).slice(1, 0, 3) * 2.0);
}

/// This rank's rows of a global batch.
inline torch::Tensor rows_of(const torch::Tensor& batch, int rank, int world) {
  const std::int64_t each = batch.size(0) / world;
  return batch.narrow(0, rank * each, each);
}

inline torch::Tensor loss_of(const torch::Tensor& output,
                             const torch::Tensor& target) {
  return torch::nn::functional::mse_loss(output, target);
}

}  // namespace accordion::testing
