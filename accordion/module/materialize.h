// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/module/init_plan.h"

// Values for modules that were built under MetaInit.
namespace accordion {

/// Implemented by a module whose buffers, or tensors in plain members, follow
/// from its configuration: tables of sines, masks, positions.
class BuffersFromConfig {
 public:
  virtual ~BuffersFromConfig() = default;
  /// Computes them anew. Registered buffers have memory: write into them
  /// (`table.copy_(…)`); plain members are assigned. Called again whenever the
  /// module gets values, on every rank.
  virtual void reset_buffers() = 0;
};

/// Gives every parameter and buffer of `root` that is on meta memory and its
/// first values (plan_initialization, rebuild_buffers). What has values keeps
/// them, so that weights may be loaded before, in whole or in part. The
/// module's tensors stay the same objects: members, ties and optimizers that
/// hold them see the values.
///
/// A value depends on options.seed and the parameter's name alone, and not on
/// the order in which modules are built.
///
/// // [Note: materialising while sharding]
/// fully_shard does the same unit by unit, so that no rank ever holds more than
/// its shard and, for a WholeInit, one whole parameter:
///     plan = plan_initialization(root, options);       before anything changes
///     for each unit: allocate its shard; for each parameter of the plan,
///       initialize_piece(init, piece.begin, piece); for others, cut them
///     show each piece with assign_data
///     rebuild_buffers(root, options)
/// Values are those of materialize, whatever the number of ranks.
///
/// Throws c10::ValueError, before anything changes, for parameters whose start
///        nobody knows; afterwards for buffers, as rebuild_buffers
void materialize(torch::nn::Module& root, const InitOptions& options = {});

template <class Contained>
void materialize(torch::nn::ModuleHolder<Contained>& root,
                 const InitOptions& options = {}) {
  materialize(static_cast<torch::nn::Module&>(*root), options);
}

/// Makes the buffers of `root` right: calls reset_buffers() of every
/// BuffersFromConfig, then options.fill_buffer for what is left, then knows
/// LibTorch's running statistics. Buffers that have values keep them, whatever
/// reset_buffers() writes.
///
/// Throws c10::ValueError that names buffers which nobody filled: those still
///        on meta, and floating-point ones that reset_buffers() left alone
void rebuild_buffers(torch::nn::Module& root, const InitOptions& options = {});

/// Makes `tensor` show `data`, as set_data does, also where that refuses: from
/// meta to memory. Object, requires_grad and `.grad()` stay. `tensor` must have
/// no graph that is still to run backward.
void assign_data(const at::Tensor& tensor, const at::Tensor& data);

}  // namespace accordion
