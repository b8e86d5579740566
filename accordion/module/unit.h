// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <torch/nn/pimpl.h>

#include "accordion/module/run_forward.h"
#include "accordion/module/unit_module.h"

namespace accordion {

namespace detail {

/// UnitModule with a forward of the very signature of M::forward, which is not
/// a template so that nn::Sequential can erase its type.
template <class M, class R, class... Args>
class UnitForward : public UnitModule<M> {
 public:
  using UnitModule<M>::UnitModule;
  R forward(Args... args) {
    return run_forward<R, Args...>(
        *this,
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
        *this,
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
/// virtual in LibTorch. Nor does `unit->encode(x)`, for any other member
/// function: `unit.call(&BlockImpl::encode, x)` does.
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
          *this->impl_,
          [module = static_cast<M*>(this->impl_.get())](auto&&... a) -> R {
            return module->M::forward(std::forward<decltype(a)>(a)...);
          },
          std::remove_reference_t<Args>(args)...);
    }
  }

  /// Runs the hooks around another member function: see UnitModule::call.
  template <class F, class... Args>
  decltype(auto) call(F&& function, Args&&... args) {
    return this->impl_->call(std::forward<F>(function),
                             std::forward<Args>(args)...);
  }
  template <class F, class... Args>
  decltype(auto) call(F&& function, Args&&... args) const {
    return std::as_const(*this->impl_)
        .call(std::forward<F>(function), std::forward<Args>(args)...);
  }
};

}  // namespace accordion
