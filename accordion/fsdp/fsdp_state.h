// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/executor.h"
#include "accordion/module/unit_hooks.h"

namespace accordion {

/// What fully_shard leaves behind: the executor and the communicators that it
/// uses. Owned by the hooks of the module's units, so it lives as long as one
/// of them.
struct FsdpState {
  DeviceMesh mesh;
  FsdpOptions options;
  std::shared_ptr<Executor> executor;
  std::vector<WrapDecision> decisions;  ///< about each declared unit
};

/// The hooks of unit number `unit`.
class FsdpHooks final : public UnitHooks {
 public:
  FsdpHooks(std::shared_ptr<FsdpState> state, int unit)
      : state_(std::move(state)), unit_(unit) {}

  void before_forward(std::span<at::Tensor* const> inputs) override {
    state_->executor->before_forward(unit_, inputs);
  }
  void after_forward(std::span<at::Tensor* const> outputs) override {
    state_->executor->after_forward(unit_, outputs);
  }
  void forward_threw() noexcept override {
    state_->executor->forward_threw(unit_);
  }
  [[nodiscard]] bool checkpoints() const override {
    return state_->executor->settings_of(unit_).checkpoints_activations;
  }
  [[nodiscard]] torch::autograd::edge_list recomputed_edges() override {
    return state_->executor->recomputed_edges(unit_);
  }
  std::unique_ptr<KeptTensor> keep_argument(
      const at::Tensor& argument) override {
    return state_->executor->keep_argument(argument);
  }
  void before_recompute() override {
    state_->executor->before_recompute(unit_);
  }
  void after_recompute() noexcept override {
    state_->executor->after_recompute(unit_);
  }
  [[nodiscard]] const std::shared_ptr<FsdpState>& state() const {
    return state_;
  }
  [[nodiscard]] int unit() const { return unit_; }

 private:
  std::shared_ptr<FsdpState> state_;
  int unit_;
};

/// The state of a sharded module, settled (Executor::settle) so that its
/// parameters are pieces.
///
/// Throws c10::ValueError, with `caller` as prefix, when it is not sharded
FsdpState& sharded_state(const torch::nn::Module& root, const char* caller);
/// The same, and what units are gathered from is their shards: these are about
/// to be written to (FsdpUnit::forget_copies).
FsdpState& writable_state(const torch::nn::Module& root, const char* caller);

/// The same as it is, in the middle of a pass too.
FsdpState& unsettled_state(const torch::nn::Module& root, const char* caller);

/// The hooks of a module that is a unit; null for any other.
const FsdpHooks* hooks_of(const torch::nn::Module& module);

/// A unit of a sharded module.
struct UnitRef {
  std::shared_ptr<FsdpState> state;
  int unit = 0;

  [[nodiscard]] Executor& executor() const { return *state->executor; }
};

/// The units in and below a module; the outermost of them come first.
///
/// Throws c10::ValueError, with `caller` as prefix, when there are none
std::vector<UnitRef> units_below(const torch::nn::Module& module,
                                 const char* caller);

}  // namespace accordion
