// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>

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

  /// Calls another member function of M between the hooks that forward has, so
  /// that it finds the parameters whole: `unit->call(&BlockImpl::encode, x)`.
  /// Arguments and result follow the rules of forward. Of an overloaded
  /// function, cast to the one that is meant.
  template <class R, class C, class... P, class... Args>
  R call(R (C::*method)(P...), Args&&... args) {
    return with_hooks<R, P...>(
        [this, method](auto&&... a) -> R {
          return (static_cast<M&>(*this).*
                  method)(std::forward<decltype(a)>(a)...);
        },
        std::forward<Args>(args)...);
  }
  template <class R, class C, class... P, class... Args>
  R call(R (C::*method)(P...) const, Args&&... args) const {
    return with_hooks<R, P...>(
        [this, method](auto&&... a) -> R {
          return (static_cast<const M&>(*this).*
                  method)(std::forward<decltype(a)>(a)...);
        },
        std::forward<Args>(args)...);
  }
  /// The same for `function(M&, args…)`, where default arguments are wanted or
  /// several members are called: a lambda that takes values or const
  /// references.
  template <class F, class... Args>
  requires(!std::is_member_function_pointer_v<
           std::remove_reference_t<F>>) auto call(F&& function,
                                                  Args&&... args) {
    using R = std::invoke_result_t<F, M&, std::remove_reference_t<Args>...>;
    return with_hooks<R, std::remove_reference_t<Args>...>(
        [this, function = std::forward<F>(function)](auto&&... a) mutable -> R {
          return function(static_cast<M&>(*this),
                          std::forward<decltype(a)>(a)...);
        },
        std::forward<Args>(args)...);
  }

 protected:
  explicit UnitModule(const M& module) : M(module) {}
  /// A unit of the most derived type around a copy of `module`.
  [[nodiscard]] virtual std::shared_ptr<UnitModule> make_unit(
      const M& module) const = 0;

 private:
  /// P are the types that the callee declares; arguments convert to them here.
  template <class R, class... P, class F>
  R with_hooks(F&& callee, std::type_identity_t<P>... args) const {
    return detail::run_forward<R, P...>(*this, callee,
                                        std::forward<P>(args)...);
  }
  void require_convertible() const {
    require_unsharded("to",
                      "Convert before fully_shard; for lower precision in "
                      "computation use FsdpOptions::precision.");
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
