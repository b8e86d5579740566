// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/module/unit.h"

namespace accordion::benchmarks {

/// `depth` modules of one kind, one behind the other, each made with `args`.
template <class Holder>
struct StackImpl : torch::nn::Module {
  template <class... Args>
  explicit StackImpl(int depth, const Args&... args) {
    for (int i = 0; i < depth; ++i) {
      layers.push_back(
          this->register_module("layer" + std::to_string(i), Holder(args...)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) {
      x = layer(x);
    }
    return x;
  }
  std::vector<Holder> layers;
};

/// The plain modules, and the same as units.
template <class Holder>
struct PlainStack : torch::nn::ModuleHolder<StackImpl<Holder>> {
  using torch::nn::ModuleHolder<StackImpl<Holder>>::ModuleHolder;
};
template <class Holder>
struct UnitStack : torch::nn::ModuleHolder<StackImpl<Unit<Holder>>> {
  using torch::nn::ModuleHolder<StackImpl<Unit<Holder>>>::ModuleHolder;
};

}  // namespace accordion::benchmarks
