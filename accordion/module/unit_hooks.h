// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace accordion {

/// A tensor that is kept for backward elsewhere than in memory.
class KeptTensor {
 public:
  virtual ~KeptTensor() = default;
  /// A copy of what it was, without its graph. May be called several times.
  virtual at::Tensor get() = 0;
};

/// What a Unit calls around its forward. Implemented by fsdp/; a unit without
/// hooks is the plain module.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;

  /// Before the module's forward. `inputs` are the defined tensors among its
  /// arguments; they may be replaced.
  virtual void before_forward(std::span<at::Tensor* const> inputs) = 0;

  /// After it returned. `outputs` are the defined tensors in its result; they
  /// may be replaced.
  virtual void after_forward(std::span<at::Tensor* const> outputs) = 0;

  /// Instead of after_forward when the module's forward threw.
  virtual void forward_threw() noexcept = 0;

  // ---- [Note: activation checkpointing] ----

  /// Whether forward keeps no activations and is called again in backward,
  /// without the two above.
  [[nodiscard]] virtual bool checkpoints() const = 0;
  /// Where backward goes from a checkpointed call of this unit's forward, or in
  /// it, once the gradients of the parameters that it read are there.
  [[nodiscard]] virtual torch::autograd::edge_list recomputed_edges() = 0;
  /// Keeps an argument of such a call of this unit's forward for backward;
  /// null: it is to stay in memory.
  virtual std::unique_ptr<KeptTensor> keep_argument(
      const at::Tensor& argument) = 0;
  virtual void before_recompute() = 0;
  virtual void after_recompute() noexcept = 0;
};

/// The part of a Unit that does not depend on its module: where fsdp/ attaches.
class UnitBase {
 public:
  UnitBase() = default;
  /// A copy of a unit is not attached to anything.
  UnitBase(const UnitBase&) noexcept {}
  UnitBase& operator=(const UnitBase&) noexcept { return *this; }
  virtual ~UnitBase() = default;

  [[nodiscard]] const std::shared_ptr<UnitHooks>& hooks() const {
    return hooks_;
  }
  void attach(std::shared_ptr<UnitHooks> hooks) { hooks_ = std::move(hooks); }

  /// A share in the module that this is part of; null where nobody owns it.
  [[nodiscard]] std::shared_ptr<const void> owner() const;

 protected:
  /// Throws c10::ValueError when hooks are attached: `operation` would see
  /// pieces of parameters. `remedy` says what to call instead.
  void require_unsharded(const char* operation, const char* remedy) const;

 private:
  std::shared_ptr<UnitHooks> hooks_;
};

}  // namespace accordion
