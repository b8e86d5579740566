// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace accordion {

struct FsdpState;
class StepTrace;

// What may change between the passes of a sharded module. `unit` is a Unit in
// it; a function that says "and below" also applies to the units inside, and
// may be given any module that contains units. Every rank makes the same calls.
// All throw c10::ValueError for a module that is not sharded.

// ---- Microbatches ----------------------------------------------------------

/// Whether the backwards that follow are each the last of a step (default
/// true). If not, what FsdpOptions::accumulation and
/// keep_parameters_across_microbatches put off is put off.
void set_is_last_backward(torch::nn::Module& root, bool is_last);

/// Whether gradients are reduced at the end of backward, in the unit and below.
/// If not, they are added up whole, without communication, until they are.
void set_requires_gradient_sync(torch::nn::Module& unit, bool sync);

/// On a mesh with replicas: whether gradients are also all-reduced over them,
/// in the unit and below. If not, `.grad()` stays without the sum until they
/// are.
void set_requires_all_reduce(torch::nn::Module& unit, bool all_reduce);

/// Whether the unit and those below are resharded after each backward of a
/// step; if not, the next forward finds them whole. The backward that ends a
/// step, the last and with gradient sync, reshards them in any case: optimizers
/// work on pieces. So set_is_last_backward(root, false), or NoSync, is needed
/// for this to do anything.
void set_reshard_after_backward(torch::nn::Module& unit, bool reshard);

/// Whether the unit and those below are resharded after their forward. False
/// also keeps them whole from one evaluation to the next, until reshard or the
/// end of a backward.
void set_reshard_after_forward(torch::nn::Module& unit, bool reshard);

/// What sums of gradients are divided by; nullopt: the number of ranks.
void set_gradient_divide_factor(torch::nn::Module& root,
                                std::optional<double> factor);

/// While it lives, backward communicates no gradients (as DDP's no_sync).
class NoSync {
 public:
  explicit NoSync(torch::nn::Module& root);
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync();

 private:
  std::shared_ptr<FsdpState> state_;
  std::vector<bool> before_;  // by unit
};

// ---- Parameters by hand ----------------------------------------------------

/// An all-gather that unshard began.
class UnshardHandle {
 public:
  UnshardHandle(std::shared_ptr<FsdpState> state, int unit)
      : state_(std::move(state)), unit_(unit) {}
  /// Afterwards the module holds whole parameters. A forward waits by itself.
  void wait();

 private:
  std::shared_ptr<FsdpState> state_;
  int unit_;
};

/// Starts gathering the parameters of a unit (not of those below).
///
/// Comm  one all-gather, unless the unit is unsharded already
[[nodiscard]] UnshardHandle unshard(torch::nn::Module& unit);

/// Frees the unsharded parameters of the unit and below. What backward still
/// needs is gathered again.
///
/// Throws c10::ValueError that names the unit while its forward or backward
/// runs
void reshard(torch::nn::Module& unit);

// ---- Prefetch --------------------------------------------------------------

/// The units whose gathers start when forward (backward) of `unit` begins, in
/// place of those that come next. An empty list gathers nothing ahead.
void set_forward_prefetch(torch::nn::Module& unit,
                          const std::vector<torch::nn::Module*>& units);
void set_backward_prefetch(torch::nn::Module& unit,
                           const std::vector<torch::nn::Module*>& units);

// ---- Uneven data -----------------------------------------------------------

/// Whether any rank has data for another pass.
///
/// Comm  one all-gather of a flag
[[nodiscard]] bool any_rank_has_data(const torch::nn::Module& root,
                                     bool has_data);

/// Takes part in a pass of the other ranks with gradients of zero, where this
/// one has no data for it, or has run forward and wants no backward.
///
///     while (accordion::any_rank_has_data(*net, batch.has_value())) {
///       optimizer.zero_grad();
///       if (batch) {
///         loss(net(batch->data)).backward();
///       } else {
///         accordion::join_pass(*net);
///       }
///       optimizer.step();
///     }
///
/// Gradients are divided by the number of all ranks, as ever: see
/// set_gradient_divide_factor.
///
/// Comm    the collectives of a pass, or of what is left of it
/// Throws  c10::ValueError inside a pass that left its schedule
void join_pass(torch::nn::Module& root);

// ---- Stepping in backward ---------------------------------------------------

/// A unit whose gradient is complete, under FsdpOptions::step_in_backward.
struct CompleteUnit {
  const std::string& name;  ///< FQN; "" for the root
  /// Of the gradient, this rank's share: the sum over the ranks of
  /// shard_communicator is that of the whole gradient.
  double sum_of_squares = 0.0;
};

/// Lets `step` update the parameters of each unit, in backward, where
/// `.grad()` of its pieces is defined only while it runs. Called for the same
/// units in the same order on every rank, so it may communicate. An empty one
/// takes it away. StepInBackward does this for an AdamW.
///
/// Throws c10::ValueError for a module that was sharded without
///        step_in_backward, or has a step already
void set_unit_step(torch::nn::Module& root,
                   std::function<void(const CompleteUnit& unit)> step);

// ---- Measuring -------------------------------------------------------------

/// Records where the time of the passes that follow goes (step_trace.h); null
/// ends it. Without a trace nothing is measured.
void set_step_trace(torch::nn::Module& root, std::shared_ptr<StepTrace> trace);

}  // namespace accordion
