// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/module/run_forward.h"
#include "accordion/module/unit_hooks.h"

namespace accordion {

/// A module M with hooks around its forward. Users write Unit<Holder>.
///
/// It derives from M and adds no child module, so that the names of parameters
/// do not change. clone, save, load and to do what M's do until the module is
/// sharded, and are errors that name the alternative afterwards.
template <class M>
class UnitModule : public M, public UnitBase {
 public:
  using M::M;

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  void save(torch::serialize::OutputArchive& archive) const override {
    require_unsharded("save",
                      "Gather with accordion::full_parameter(net, name) on "
                      "every rank and save that on rank 0.");
    M::save(archive);
  }
  void load(torch::serialize::InputArchive& archive) override {
    require_unsharded("load",
                      "Load before fully_shard, or fill the pieces of "
                      "accordion::local_parameters(net).");
    M::load(archive);
  }
  void to(torch::Device device, torch::Dtype dtype,
          bool non_blocking = false) override {
    require_convertible();
    M::to(device, dtype, non_blocking);
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    require_convertible();
    M::to(dtype, non_blocking);
  }
  void to(torch::Device device, bool non_blocking = false) override {
    require_convertible();
    M::to(device, non_blocking);
  }

 protected:
  explicit UnitModule(const M& module) : M(module) {}
  /// A unit of the most derived type around a copy of `module`.
  [[nodiscard]] virtual std::shared_ptr<UnitModule> make_unit(
      const M& module) const = 0;

 private:
  void require_convertible() const {
    require_unsharded("to",
                      "Convert before fully_shard; for lower precision in "
                      "computation use FsdpOptions::precision.");
  }
};

namespace detail {

/// UnitModule with a forward of the very signature of M::forward, which is not
/// a template so that nn::Sequential can erase its type.
template <class M, class R, class... Args>
class UnitForward : public UnitModule<M> {
 public:
  using UnitModule<M>::UnitModule;
  R forward(Args... args) {
    return run_forward<R, Args...>(
        this->hooks().get(),
        [this](auto&&... a) -> R {
          return M::forward(std::forward<decltype(a)>(a)...);
        },
        std::forward<Args>(args)...);
  }

 protected:
  std::shared_ptr<UnitModule<M>> make_unit(const M& module) const override {
    return std::shared_ptr<UnitForward>(new UnitForward(module));
  }

 private:
  explicit UnitForward(const M& module) : UnitModule<M>(module) {}
};

template <class M, class R, class... Args>
class ConstUnitForward : public UnitModule<M> {
 public:
  using UnitModule<M>::UnitModule;
  R forward(Args... args) const {
    return run_forward<R, Args...>(
        this->hooks().get(),
        [this](auto&&... a) -> R {
          return M::forward(std::forward<decltype(a)>(a)...);
        },
        std::forward<Args>(args)...);
  }

 protected:
  std::shared_ptr<UnitModule<M>> make_unit(const M& module) const override {
    return std::shared_ptr<ConstUnitForward>(new ConstUnitForward(module));
  }

 private:
  explicit ConstUnitForward(const M& module) : UnitModule<M>(module) {}
};

template <class M, class Signature>
struct SelectUnit {
  static_assert(
      !std::is_same_v<Signature, Signature>,
      "accordion::Unit needs a module with one non-template forward. Give an "
      "overloaded or templated forward one name with one signature in a class "
      "of your own, and make that the Unit.");
};
template <class M, class C, class R, class... Args>
struct SelectUnit<M, R (C::*)(Args...)> {
  using type = UnitForward<M, R, Args...>;
};
template <class M, class C, class R, class... Args>
struct SelectUnit<M, R (C::*)(Args...) noexcept> {
  using type = UnitForward<M, R, Args...>;
};
template <class M, class C, class R, class... Args>
struct SelectUnit<M, R (C::*)(Args...) const> {
  using type = ConstUnitForward<M, R, Args...>;
};
template <class M, class C, class R, class... Args>
struct SelectUnit<M, R (C::*)(Args...) const noexcept> {
  using type = ConstUnitForward<M, R, Args...>;
};

}  // namespace detail

/// The module behind Unit<Holder>, for a module type M.
template <class M>
using UnitImpl = typename detail::SelectUnit<M, decltype(&M::forward)>::type;

/// A module holder whose module is an FSDP unit once fully_shard has seen it:
/// `Unit<Block>` wherever `Block` stood. Before that, or in a program that
/// never shards, it is a Block.
///
/// Calls through the holder, through `->forward` and through nn::Sequential run
/// the hooks. `module->as<BlockImpl>()->forward(x)` does not: forward is not
/// virtual in LibTorch.
template <class Holder>
class Unit
    : public torch::nn::ModuleHolder<UnitImpl<typename Holder::ContainedType>> {
  using Contained = UnitImpl<typename Holder::ContainedType>;

 public:
  using torch::nn::ModuleHolder<Contained>::ModuleHolder;
  using Impl = Contained;

  /// Calls forward; trailing arguments with defaults may be left out, which
  /// the signature alone would not allow.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    using M = typename Holder::ContainedType;
    if constexpr (std::is_invocable_v<decltype(&Contained::forward), Contained&,
                                      Args...>) {
      return this->impl_->forward(std::forward<Args>(args)...);
    } else {
      using R =
          decltype(std::declval<M&>().forward(std::forward<Args>(args)...));
      return detail::run_forward<R, std::remove_reference_t<Args>...>(
          this->impl_->hooks().get(),
          [module = static_cast<M*>(this->impl_.get())](auto&&... a) -> R {
            return module->M::forward(std::forward<decltype(a)>(a)...);
          },
          std::remove_reference_t<Args>(args)...);
    }
  }
};

template <class M>
std::shared_ptr<torch::nn::Module> UnitModule<M>::clone(
    const std::optional<torch::Device>& device) const {
  require_unsharded("clone", "Clone before fully_shard.");
  // M's own clone is an M: its hooks would be gone. A unit that copies it
  // shares the clone's parameters and children, and the clone goes away.
  const auto plain = std::dynamic_pointer_cast<M>(M::clone(device));
  TORCH_INTERNAL_ASSERT(plain, "clone() of '", this->name(),
                        "' returned another type");
  return make_unit(*plain);
}

}  // namespace accordion
