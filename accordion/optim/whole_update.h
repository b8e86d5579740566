// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion {

/// Computes what needs whole matrices, each on one rank: optimizers such as
/// Muon and Shampoo. values[i] is this rank's piece of something of the shape
/// of parameters[i], its momentum say. Rank i % W of the W ranks that share a
/// copy receives it whole, and calls `update(i, whole)`; every rank gets its
/// piece of what that returns, in place of values[i].
///
/// Shapes    values[i]: [end - begin], all of one dtype; whole and the result
///           of update: parameters[i].global_shape
/// Requires  the same parameters in the same order on every rank
/// Comm      for every W parameters one reduce-scatter and one all-gather, each
///           of W times the largest of them; none at world size 1
/// Memory    adds 2 W + 1 times the largest of W parameters
/// Throws    c10::ValueError for values or results of another size or dtype,
///           before the first collective where values are at fault
void update_whole(
    const torch::nn::Module& root,
    const std::vector<LocalParameter>& parameters,
    std::vector<at::Tensor>& values,
    const std::function<at::Tensor(std::size_t index, const at::Tensor& whole)>&
        update);

}  // namespace accordion
