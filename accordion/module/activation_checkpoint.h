// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "accordion/module/for_each_tensor.h"
#include "accordion/module/unit_hooks.h"

// [Note: activation checkpointing]
// A checkpointed call runs without a graph: of all that is computed inside only
// the results stay, and the arguments. One autograd node stands behind the
// results. In backward it makes the call again, with a graph this time, lets
// the engine run that graph from the results' gradients, and hands on the
// gradients of the arguments. Parameters, and whatever else the call reads, get
// theirs in the inner run as in any backward.
namespace accordion {

namespace detail {

/// The part of a checkpointed call that depends on its types.
class CallAgain {
 public:
  virtual ~CallAgain() = default;
  /// The tensors in the result, with `inputs` in place of the tensors among the
  /// arguments.
  virtual std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) = 0;
  /// Lets go of tensors among the arguments, those that are `kept` elsewhere.
  virtual void let_go(const std::vector<bool>& kept) = 0;
};

/// What results depend on besides arguments: random numbers and autocast.
struct CallContext;
std::shared_ptr<const CallContext> call_context(
    std::span<const at::Tensor> inputs);

/// In place of a tensor that is kept elsewhere.
at::Tensor stand_in();

/// While it lives, this thread makes the first of the two calls.
class FirstCall {
 public:
  FirstCall();
  FirstCall(const FirstCall&) = delete;
  FirstCall& operator=(const FirstCall&) = delete;
  ~FirstCall();

 private:
  at::NoGradGuard no_grad_;
  bool before_;
};

/// Whether this thread is in one: there is no graph, and a backward follows.
[[nodiscard]] bool in_first_call();

/// While it lives, this thread is in the forward of a unit.
class OpenForward {
 public:
  explicit OpenForward(UnitHooks& unit);
  OpenForward(const OpenForward&) = delete;
  OpenForward& operator=(const OpenForward&) = delete;
  ~OpenForward();
};

/// Replaces `outputs` by tensors of the same memory with the node behind them.
/// `unit`: the hooks of the unit whose forward is called; null: of none. The
/// call may read parameters of the innermost unit whose forward is open, which
/// the graph around it does not show: the node leads there too.
void record_call(std::span<at::Tensor* const> outputs,
                 std::span<const at::Tensor> inputs,
                 std::shared_ptr<const CallContext> context,
                 std::unique_ptr<CallAgain> again,
                 std::shared_ptr<UnitHooks> unit);

template <class T>
std::vector<at::Tensor> tensors_of(T& value) {
  std::vector<at::Tensor> tensors;
  for_each_tensor(value, [&](at::Tensor& t) { tensors.push_back(t); });
  return tensors;
}

template <class Function, class Arguments>
class CallAgainOf final : public CallAgain {
 public:
  CallAgainOf(Function function, Arguments arguments)
      : function_(std::move(function)), arguments_(std::move(arguments)) {}

  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) override {
    Arguments arguments = arguments_;
    auto input = inputs.begin();
    for_each_tensor(arguments, [&](at::Tensor& t) { t = *input++; });
    auto result = function_(arguments);
    return tensors_of(result);
  }

  void let_go(const std::vector<bool>& kept) override {
    std::size_t i = 0;
    for_each_tensor(arguments_, [&](at::Tensor& t) {
      if (kept[i++]) {
        t = stand_in();  // undefined ones are not counted as tensors
      }
    });
  }

 private:
  Function function_;
  Arguments arguments_;
};

/// `function(arguments)`, where arguments is a tuple that it may take apart.
template <class Function, class Arguments>
auto checkpointed(Function function, Arguments arguments,
                  std::shared_ptr<UnitHooks> unit) {
  const std::vector<at::Tensor> inputs = tensors_of(arguments);
  auto context = call_context(inputs);
  auto result = [&] {
    const FirstCall first_call;
    Arguments copy = arguments;
    return function(copy);
  }();
  std::vector<at::Tensor*> outputs;
  for_each_tensor(result, [&](at::Tensor& t) { outputs.push_back(&t); });
  record_call(outputs, inputs, std::move(context),
              std::make_unique<CallAgainOf<Function, Arguments>>(
                  std::move(function), std::move(arguments)),
              std::move(unit));
  return result;
}

}  // namespace detail

/// `function(args…)`, of which backward keeps the arguments and nothing else:
/// it calls the function again for what it needs.
///
///     const auto block = [mlp](at::Tensor x) { return mlp->forward(x); };
///     x = accordion::checkpoint(block, x);
///
/// Random numbers and autocast are in the second call as they were in the
/// first. Gradients reach arguments and what the function captured alike. Calls
/// may be nested, and contain units of a sharded module: each is gathered once
/// in backward. For a whole unit FsdpOptions::activation_checkpointing is
/// simpler.
///
/// Requires  results that depend on arguments, captured tensors and random
///           numbers alone; what is captured by reference outlives backward.
///           Tensors in arguments and result are found by for_each_tensor
/// Memory    the tensors among the arguments; in backward also what the call
///           keeps without checkpointing
/// Throws    in backward, c10::Error: the second call returned other tensors,
/// an
///           argument was written to meanwhile, or the caller wants a graph of
///           the gradient (create_graph)
template <class Function, class... Args>
auto checkpoint(Function function, Args... args) {
  using R = std::invoke_result_t<Function&, Args&...>;
  static_assert(
      detail::traversal_known<std::remove_cv_t<R>>() && !std::is_void_v<R> &&
          !std::is_reference_v<R>,
      "accordion::checkpoint needs a function that returns tensors by "
      "value, in a type that accordion::TensorTraversal knows");
  if (!at::GradMode::is_enabled()) {
    return function(args...);
  }
  return detail::checkpointed(
      [function = std::move(function)](std::tuple<Args...>& arguments) mutable {
        return std::apply(function, arguments);
      },
      std::tuple<Args...>(std::move(args)...), /*unit=*/nullptr);
}

}  // namespace accordion
