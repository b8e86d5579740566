// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace accordion {

/// The parameters of `root`, each once: what an optimizer is to be given.
///
/// torch::nn::Module::parameters() lists a module that is registered under two
/// parents twice, and an optimizer then steps its parameters twice. Works
/// before and after fully_shard.
std::vector<torch::Tensor> parameters(const torch::nn::Module& root);

template <class Contained>
std::vector<torch::Tensor> parameters(
    const torch::nn::ModuleHolder<Contained>& root) {
  return parameters(static_cast<const torch::nn::Module&>(*root));
}

}  // namespace accordion
