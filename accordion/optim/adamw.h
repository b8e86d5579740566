// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  /// Decoupled: parameters shrink by lr * weight_decay a step.
  double weight_decay = 1e-2;
  /// Which parameters decay; unset: all. Norms and biases usually do not.
  std::function<bool(const LocalParameter&)> decays = {};
};

/// AdamW over the flat shards of a sharded module: one fused pass over a rank's
/// share of parameters, gradients and moments, in place of one per parameter.
/// The same arithmetic as torch::optim::AdamW.
///
/// A parameter whose requires_grad is set later starts with moments of zero at
/// the first step that has its gradient. One that is frozen is not updated; it
/// finds its moments again when it is no longer.
///
/// Requires  the module was passed to fully_shard, and outlives the optimizer
/// Memory    two moments in the stored dtype: 2 * the shards' bytes
/// Source    Loshchilov and Hutter 2019, arXiv:1711.05101
class AdamW {
 public:
  /// Throws c10::ValueError for an option out of range, or a module that is not
  /// sharded
  AdamW(torch::nn::Module& root, AdamWOptions options);
  template <class Contained>
  AdamW(torch::nn::ModuleHolder<Contained>& root, AdamWOptions options)
      : AdamW(static_cast<torch::nn::Module&>(*root), std::move(options)) {}

  /// Updates the pieces of parameters that have a gradient, which is read times
  /// `gradient_scale`: clipping without a pass of its own (clip_coefficient).
  /// No communication.
  void step(double gradient_scale = 1.0);
  /// Forgets the gradients: the next reduction starts anew.
  void zero_grad();

  /// What is kept for a parameter's piece.
  struct Moments {
    torch::Tensor first;     ///< [end - begin], view
    torch::Tensor second;    ///< [end - begin], view
    std::int64_t steps = 0;  ///< that they have seen
  };
  /// nullopt for a name that is not that of a parameter that has had a gradient
  /// to be stepped with.
  [[nodiscard]] std::optional<Moments> moments(const std::string& parameter);
  /// Sets the steps of parameters by name, as when their moments were read from
  /// a file. Others keep theirs.
  void set_steps(const std::map<std::string, std::int64_t>& steps);

  [[nodiscard]] const torch::nn::Module& root() const { return root_; }
  [[nodiscard]] double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }
  /// Bytes of the moments on this rank, padding included.
  [[nodiscard]] std::int64_t state_bytes() const { return state_bytes_; }

 private:
  /// A stretch of a shard that is updated in one pass.
  struct Range {
    std::vector<LocalParameter> pieces;  // that lie in it, in order
    std::vector<std::int64_t> offsets;  // of the pieces, from the range's start
    bool decays = true;
    torch::Tensor parameters;     // [numel], view of the shard
    torch::Tensor gradients;      // [numel]
    torch::Tensor first_moment;   // [numel]
    torch::Tensor second_moment;  // [numel]
    std::int64_t steps = 0;
  };

  void add_new_shards();
  void add_shard(const FlatShard& shard);
  static std::vector<Range> split(const Range& range);
  void split_where_gradients_differ();
  void update(Range& range, double gradient_scale) const;
  void update_flat(Range& range, double gradient_scale) const;

  torch::nn::Module& root_;
  AdamWOptions options_;
  std::vector<Range> ranges_;
  std::unordered_set<const void*> known_shards_;  // by their parameters' memory
  std::optional<std::uint64_t> trainable_version_;  // when last looked
  std::int64_t state_bytes_ = 0;
};

}  // namespace accordion
