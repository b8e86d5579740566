// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/options.h"
#include "accordion/module/unit.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// Shards the parameters of `root` over the mesh.
///
/// Every accordion::Unit below `root`, and `root` itself, becomes an FSDP unit:
/// its parameters, less those of units inside it, are gathered before its
/// forward and backward and reduced together. Afterwards each parameter of the
/// module is this rank's piece (possibly empty) and `.grad()` its gradient, so
/// that an optimizer made before or after works on pieces.
///
/// Requires  the same module with the same values on every rank (checked by a
///           checksum); called once, outside of forward and backward
/// Comm      one all-reduce of the checksums; allocates communication buffers
/// Memory    parameters shrink to their pieces; buffers of
///           FsdpOptions::prefetch + 2 of the largest unit come on top
/// Throws    c10::ValueError: parameters in no unit, parameters on another
///           device or dtype than the mesh handles, ranks that disagree,
///           a module that is sharded already
/// Source    Zhao et al. 2023, arXiv:2304.11277; upstream fully_shard
void fully_shard(torch::nn::Module& root, const DeviceMesh& mesh,
                 const FsdpOptions& options = {});

template <class Contained>
void fully_shard(torch::nn::ModuleHolder<Contained>& root,
                 const DeviceMesh& mesh, const FsdpOptions& options = {}) {
  fully_shard(static_cast<torch::nn::Module&>(*root), mesh, options);
}

/// This rank's piece of one parameter of a sharded module.
struct LocalParameter {
  std::string name;  ///< FQN
  std::vector<std::int64_t> global_shape;
  std::int64_t begin = 0;  ///< first element owned, in row-major order
  std::int64_t end = 0;    ///< one past the last; begin == end owns nothing
  torch::Tensor piece;     ///< [end - begin], stored dtype; writes reach the
                           ///< parameter
  torch::Tensor gradient;  ///< [end - begin]; undefined where frozen
  bool requires_grad = true;
  /// Ranks that hold the same elements (1 where sharded over all ranks).
  int replicas = 1;
};

/// The pieces of a sharded module, in the order of units and parameters; each
/// shared parameter once, under its first name.
///
/// Throws c10::ValueError when `root` was not passed to fully_shard
std::vector<LocalParameter> local_parameters(const torch::nn::Module& root);

/// Gathers one parameter in its global shape, on every rank.
///
/// Comm one all-gather of the parameter's padded size; called by every rank
torch::Tensor full_parameter(const torch::nn::Module& root,
                             std::string_view name);
/// The same for its gradient.
torch::Tensor full_gradient(const torch::nn::Module& root,
                            std::string_view name);

/// Scales the gradients so that their global p-norm is at most `max_norm`, and
/// returns the norm before, the same on every rank: what
/// torch::nn::utils::clip_grad_norm_ does for a module that is not sharded.
///
/// Comm   one all-reduce of one double over the shard axis
/// Throws c10::ValueError for max_norm < 0, or norm_type other than a number
///        >= 1 or infinity; for a norm that is not finite when
///        `error_if_nonfinite`
double clip_grad_norm_(torch::nn::Module& root, double max_norm,
                       double norm_type = 2.0, bool error_if_nonfinite = false);

template <class Contained>
double clip_grad_norm_(torch::nn::ModuleHolder<Contained>& root,
                       double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false) {
  return clip_grad_norm_(static_cast<torch::nn::Module&>(*root), max_norm,
                         norm_type, error_if_nonfinite);
}

/// The schedule that the steps of a sharded module follow; empty until its
/// first step has been recorded.
StepSchedule schedule(const torch::nn::Module& root);

/// Replaces the schedule, on every rank alike, from the next step on.
///
/// Throws c10::ValueError when validate(schedule) finds a fault
void set_schedule(torch::nn::Module& root, StepSchedule schedule);

/// What a rank holds of a sharded module now, in bytes.
struct ShardedBytes {
  std::int64_t parameters = 0;  ///< pieces, with padding
  std::int64_t gradients = 0;   ///< of the pieces, with padding
  std::int64_t unsharded = 0;   ///< slots that hold gathered parameters
  std::int64_t unsharded_gradients = 0;  ///< slots of gradients to be reduced
};
ShardedBytes sharded_bytes(const torch::nn::Module& root);

}  // namespace accordion
