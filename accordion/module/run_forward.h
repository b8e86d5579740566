// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "accordion/module/activation_checkpoint.h"
#include "accordion/module/for_each_tensor.h"
#include "accordion/module/unit_hooks.h"

namespace accordion::detail {

/// Whether hooks get a copy of an argument declared as Arg, whose tensors they
/// may replace. A forward that takes a non-const reference means to write
/// through it: that argument is passed on as it is.
template <class Arg>
inline constexpr bool is_held =
    has_tensors<Arg> && !(std::is_lvalue_reference_v<Arg> &&
                          !std::is_const_v<std::remove_reference_t<Arg>>);

/// Storage for one argument during the call.
template <class Arg>
using HeldArgument =
    std::conditional_t<is_held<Arg>, std::remove_cvref_t<Arg>, Arg&&>;

/// Hands an argument to the module the way forward declared it.
template <class Arg>
decltype(auto) pass(HeldArgument<Arg>& held) {
  if constexpr (is_held<Arg> && std::is_lvalue_reference_v<Arg>) {
    return std::as_const(held);
  } else {
    return std::forward<Arg>(held);
  }
}

/// While forward runs; tells the hooks that it threw unless it returned.
class ForwardGuard {
 public:
  explicit ForwardGuard(UnitHooks& hooks) : hooks_(hooks), open_(hooks) {}
  ForwardGuard(const ForwardGuard&) = delete;
  ForwardGuard& operator=(const ForwardGuard&) = delete;
  ~ForwardGuard() {
    if (!returned_) {
      hooks_.forward_threw();
    }
  }
  void returned() { returned_ = true; }

 private:
  UnitHooks& hooks_;
  OpenForward open_;
  bool returned_ = false;
};

template <class Held>
void collect_if_held(Held& held, std::vector<at::Tensor*>& tensors) {
  for_each_tensor(
      held, [&tensors](at::Tensor& tensor) { tensors.push_back(&tensor); });
}

/// Whether a forward that declares an argument as Arg can be called again: with
/// a copy, which nothing is written to for the caller.
template <class Arg>
inline constexpr bool is_repeatable =
    std::is_copy_constructible_v<std::decay_t<Arg>> &&
    !(std::is_lvalue_reference_v<Arg> &&
      !std::is_const_v<std::remove_reference_t<Arg>>);

/// Hands a copy of an argument to the module the way forward declared it.
template <class Arg>
decltype(auto) hand_over(std::decay_t<Arg>& copy) {
  if constexpr (std::is_lvalue_reference_v<Arg>) {
    return std::as_const(copy);
  } else {
    return std::move(copy);
  }
}

/// `call(args…)` as a checkpointed call ([Note: activation checkpointing]).
template <class R, class... Args, class Call>
R checkpointed_forward(const UnitBase& unit, Call call,
                       std::tuple<std::decay_t<Args>...> arguments) {
  return checkpointed(
      [call = std::move(call), owner = unit.owner()](
          std::tuple<std::decay_t<Args>...>& copies) mutable {
        return [&]<std::size_t... I>(std::index_sequence<I...>)->R {
          return call(hand_over<Args>(std::get<I>(copies))...);
        }
        (std::index_sequence_for<Args...>{});
      },
      std::move(arguments), unit.hooks());
}

[[nodiscard]] bool requires_grad(const std::vector<at::Tensor*>& tensors);
/// Whether a parameter in or below the unit requires grad.
[[nodiscard]] bool has_trainable(const UnitBase& unit);

/// Throws c10::ValueError: a unit is to be checkpointed whose forward cannot be
/// called again.
[[noreturn]] void throw_not_repeatable(const UnitBase& unit);

/// Runs `call(args…)` between the unit's hooks, if there are any. Args are the
/// types that the module's forward declares.
template <class R, class... Args, class Call>
R run_forward(const UnitBase& unit, Call&& call,
              std::type_identity_t<Args>&&... args) {
  static_assert(!std::is_reference_v<R>,
                "the forward of an accordion::Unit returns by value");
  static_assert(traversal_known<std::remove_cv_t<R>>(),
                "accordion::Unit does not know where the tensors are in what "
                "this forward returns: specialise accordion::TensorTraversal");
  UnitHooks* const hooks = unit.hooks().get();
  if (hooks == nullptr) {
    return call(std::forward<Args>(args)...);
  }
  std::tuple<HeldArgument<Args>...> held(std::forward<Args>(args)...);
  std::vector<at::Tensor*> tensors;
  const auto collect = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (..., [&] {
      if constexpr (is_held<Args>) {
        collect_if_held(std::get<I>(held), tensors);
      }
    }());
  };
  collect(std::index_sequence_for<Args...>{});
  hooks->before_forward(tensors);

  ForwardGuard guard(*hooks);
  const bool checkpoints = hooks->checkpoints() && at::GradMode::is_enabled() &&
                           (requires_grad(tensors) || has_trainable(unit));
  const auto invoke = [&]<std::size_t... I>(std::index_sequence<I...>)->R {
    if constexpr (!std::is_void_v<R>) {
      if (checkpoints) {
        if constexpr ((... && is_repeatable<Args>)&&std::
                          is_copy_constructible_v<std::decay_t<Call>>) {
          return checkpointed_forward<R, Args...>(unit, call,
                                                  {std::get<I>(held)...});
        } else {
          throw_not_repeatable(unit);
        }
      }
    }
    return call(pass<Args>(std::get<I>(held))...);
  };
  tensors.clear();
  if constexpr (std::is_void_v<R>) {
    invoke(std::index_sequence_for<Args...>{});
    guard.returned();
    hooks->after_forward(tensors);
  } else {
    std::remove_cv_t<R> result = invoke(std::index_sequence_for<Args...>{});
    guard.returned();
    collect_if_held(result, tensors);
    hooks->after_forward(tensors);
    return result;
  }
}

}  // namespace accordion::detail
