// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/fsdp/sharded_module.h"
#include "accordion/offload/offload_target.h"
#include "accordion/offload/staged_blocks.h"
#include "accordion/optim/paged_moments.h"
#include "accordion/optim/shard_moments.h"

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
  /// Of both moments, kFloat or kBFloat16; unset: the dtype in which parameters
  /// are stored. With bf16 beside fp32 parameters, on the CPU.
  ///
  /// Rounded to nearest, what changes a bf16 value by less than half its
  /// spacing, 1/512 to 1/256 of it, is lost. A beta2 above 0.998 changes the
  /// second moment by less where gradients shrink, so that it never falls again
  /// and steps stay short: use stochastic_rounding, or a beta2 such as 0.95.
  std::optional<c10::ScalarType> moments_dtype = {};
  /// What is stored in bf16, parameters too, is rounded up or down at random so
  /// that the mean over steps is exact: small changes add up. The bits are a
  /// function of rounding_seed, the parameter's name, its steps, and an
  /// element's place in the whole parameter: the same for any number of ranks
  /// and threads, and after a resume.
  bool stochastic_rounding = false;
  std::uint64_t rounding_seed = 0;  ///< the same on every rank
  /// Keeps the moments out of memory; unset: in it. The arithmetic is the same.
  std::optional<OffloadTarget> offload = {};
};

/// AdamW over the flat shards of a sharded module: one fused pass over a rank's
/// share of parameters, gradients and moments, in place of one per parameter.
/// The same arithmetic as torch::optim::AdamW, in fp32 where parameters or
/// moments are bf16.
///
/// A parameter whose requires_grad is set later starts with moments of zero at
/// the first step that has its gradient. One that is frozen is not updated; it
/// finds its moments again when it is no longer.
///
/// What FsdpOptions::offload keeps out of memory is stepped block by block.
///
/// Requires  the module was passed to fully_shard, and outlives the optimizer
/// Memory    two moments in moments_dtype: 2 * the shards' bytes where unset;
///           with `offload`, its buffers in their place
/// Source    Loshchilov and Hutter 2019, arXiv:1711.05101
class AdamW {
 public:
  /// Throws c10::ValueError for an option out of range, moments or rounding
  /// that the parameters' dtype or device does not allow, or a module that is
  /// not sharded; std::invalid_argument for a target of `offload` out of range,
  /// OffloadError where it has no room
  AdamW(torch::nn::Module& root, AdamWOptions options);
  template <class Contained>
  AdamW(torch::nn::ModuleHolder<Contained>& root, AdamWOptions options)
      : AdamW(static_cast<torch::nn::Module&>(*root), std::move(options)) {}

  /// Updates the pieces of parameters that have a gradient, which is read times
  /// `gradient_scale`: clipping without a pass of its own (clip_coefficient).
  /// No communication.
  void step(double gradient_scale = 1.0);
  /// The same for the pieces of one unit, by its FQN ("" for the root).
  void step_unit(const std::string& unit, double gradient_scale = 1.0);
  /// Forgets the gradients: the next reduction starts anew.
  void zero_grad();

  /// What is kept for a parameter's piece. With `offload`, the tensors lie on
  /// mappings of the store, and are good until the next step.
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
  /// Bytes of the moments on this rank, padding included, and what of them, or
  /// of buffers for them, is in memory.
  [[nodiscard]] std::int64_t state_bytes() const { return state_bytes_; }
  [[nodiscard]] std::int64_t held_bytes() const;
  /// What offloading has moved and waited for; nullopt without `offload`.
  [[nodiscard]] std::optional<OffloadCounters> offload_counters() const;
  /// Whether transfers are noted, and those noted since the last call.
  void record_transfers(bool on);
  std::vector<TransferSpan> take_transfers();
  /// How and where moments are offloaded, for a log; "" without `offload`.
  [[nodiscard]] std::string describe_offload() const;

 private:
  /// Neighbours in a shard that are updated alike.
  struct Range {
    std::int64_t begin = 0;  // elements of the shard
    std::int64_t end = 0;
    std::vector<LocalParameter> pieces;  // that lie in it, in order
    std::vector<std::int64_t> offsets;   // of the pieces, in the shard
    bool decays = true;
    std::int64_t steps = 0;
  };
  struct Shard {
    std::string unit;
    torch::Tensor parameters;                    // [numel]
    torch::Tensor gradients;                     // [numel]
    std::optional<PagedShard> paged_parameters;  // FlatShard has both
    std::optional<PagedShard> paged_gradients;
    CopyInPlace* copy = nullptr;  // that a step writes; null: none
    std::unique_ptr<ShardMoments> moments;
    std::vector<Range> ranges;
  };
  /// What a step reads and writes; flat, of one length.
  struct Operands {
    std::int64_t begin = 0;       // in the shard
    torch::Tensor parameters;     // [numel]
    torch::Tensor gradients;      // [numel], dtype of the parameters
    torch::Tensor first_moment;   // [numel]
    torch::Tensor second_moment;  // [numel], dtype of the first
    torch::Tensor copy;  // [numel] bf16, to be written; undefined: none
  };

  void add_new_shards();
  void add_shards(std::vector<FlatShard> flats);
  [[nodiscard]] std::vector<Range> ranges_of(const FlatShard& flat) const;
  static std::vector<Range> split(const Range& range);
  static void split_where_gradients_differ(Shard& shard);
  void step_shards(const std::string* unit, double gradient_scale);
  void step(Shard& shard, double gradient_scale);
  void update(const Operands& all, const Range& range,
              double gradient_scale) const;
  void update_fused(const Operands& operands, const Range& range,
                    double gradient_scale) const;
  void update_by_torch(const Operands& operands, const Range& range,
                       double gradient_scale) const;
  [[nodiscard]] c10::ScalarType moments_dtype(const FlatShard& shard) const;
  [[nodiscard]] bool steps_copy(const FlatShard& shard) const;

  torch::nn::Module& root_;
  AdamWOptions options_;
  std::vector<Shard> shards_;
  std::vector<std::shared_ptr<MomentPager>> pagers_;  // one, before any thaw
  BlockOrder shard_order_;  // of offloaded parameters and gradients
  std::unordered_set<const void*> known_shards_;    // by parameters' storage
  std::optional<std::uint64_t> trainable_version_;  // when last looked
  std::int64_t state_bytes_ = 0;
};

}  // namespace accordion
