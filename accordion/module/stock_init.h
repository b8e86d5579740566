// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "accordion/module/init_plan.h"

namespace accordion {

/// How LibTorch's own module of that type, and classes derived from it, start
/// the parameter called `name` below them: the distributions of their
/// reset_parameters(). nullopt for other modules and other parameters.
std::optional<InitialValue> stock_initial_value(const torch::nn::Module& module,
                                                const std::string& name,
                                                const at::Tensor& parameter);

/// The same for the buffers of LibTorch's modules: running statistics.
std::optional<double> stock_buffer_value(const torch::nn::Module& module,
                                         const std::string& name);

}  // namespace accordion
