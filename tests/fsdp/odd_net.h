// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "tests/fsdp/models.h"

namespace accordion::testing {

/// Divides by no world size of the tests.
inline constexpr int kVocabulary = 11;

/// Everything that makes sharding hard, in one small net: an embedding tied to
/// the head, a frozen block, a block in which frozen and trainable parameters
/// mix, an unused parameter, a scalar, one without elements, one row.
template <template <class> class Wrap>
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    embed = this->register_module("embed",
                                  torch::nn::Embedding(kVocabulary, kFeatures));
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(
          this->register_module("block" + std::to_string(i), Wrap<Block>()));
    }
    tied = this->register_parameter("head_weight", embed->weight);
    scale = this->register_parameter("scale", torch::ones({}));
    row = this->register_parameter("row", torch::full({1, kFeatures}, 0.1F));
    empty = this->register_parameter("empty", torch::zeros({0, 4}));
    unused = this->register_parameter("unused", torch::ones({5}));
    for (auto& parameter : blocks[1]->parameters()) {
      parameter.set_requires_grad(false);
    }
    blocks[2]->up->weight.set_requires_grad(false);
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto x = embed(tokens).mean(1) + row;
    for (auto& block : blocks) {
      x = block(x);
    }
    return torch::linear(x * scale, tied) + empty.sum();
  }
  torch::nn::Embedding embed{nullptr};
  std::vector<Wrap<Block>> blocks;
  torch::Tensor tied, scale, row, empty, unused;
};

struct PlainOddNet : torch::nn::ModuleHolder<OddNetImpl<Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitOddNet : torch::nn::ModuleHolder<OddNetImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

/// Rows of three tokens, and a class for each; formulas of step and row.
inline torch::Tensor tokens_of(int step, int rows) {
  const auto row = torch::arange(rows, torch::kLong).unsqueeze(1);
  const auto column = torch::arange(3, torch::kLong).unsqueeze(0);
  return (row * 5 + column * 3 + step * 7 + row * column) % kVocabulary;
}
inline torch::Tensor classes_of(int step, int rows) {
  return tokens_of(step, rows).sum(1) % kVocabulary;
}

inline torch::Tensor class_loss(const torch::Tensor& logits,
                                const torch::Tensor& classes) {
  return torch::nn::functional::cross_entropy(logits.to(torch::kFloat),
                                              classes);
}

}  // namespace accordion::testing
