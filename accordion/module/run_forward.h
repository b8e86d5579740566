// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Tells the hooks that forward threw unless it returned.
class ForwardGuard {
 public:
  explicit ForwardGuard(UnitHooks& hooks) : hooks_(hooks) {}
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
  bool returned_ = false;
};

template <class Held>
void collect_if_held(Held& held, std::vector<at::Tensor*>& tensors) {
  for_each_tensor(
      held, [&tensors](at::Tensor& tensor) { tensors.push_back(&tensor); });
}

/// Runs `call(args…)` between the hooks, if there are any. Args are the types
/// that the module's forward declares.
template <class R, class... Args, class Call>
R run_forward(UnitHooks* hooks, Call&& call,
              std::type_identity_t<Args>&&... args) {
  static_assert(!std::is_reference_v<R>,
                "the forward of an accordion::Unit returns by value");
  static_assert(traversal_known<std::remove_cv_t<R>>(),
                "accordion::Unit does not know where the tensors are in what "
                "this forward returns: specialise accordion::TensorTraversal");
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
  const auto invoke = [&]<std::size_t... I>(std::index_sequence<I...>)->R {
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
