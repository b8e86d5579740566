// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/activation_checkpoint.h"

#include <algorithm>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "accordion/module/autograd_node.h"

namespace accordion::detail {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local bool is_first_call = false;
thread_local std::vector<UnitHooks*> open_forwards;

at::Tensor random_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

struct CallContext {
  struct Device {
    at::Generator generator;
    at::Tensor random_state;
    at::DeviceType type;
    bool autocast;
    at::ScalarType autocast_dtype;
  };
  std::vector<Device> devices;
};

namespace {

CallContext::Device device_context(at::Device device) {
  const at::Generator& generator = at::globalContext().defaultGenerator(device);
  return {.generator = generator,
          .random_state = random_state(generator),
          .type = device.type(),
          .autocast = at::autocast::is_autocast_enabled(device.type()),
          .autocast_dtype = at::autocast::get_autocast_dtype(device.type())};
}

void apply_context(const CallContext& context) {
  for (const CallContext::Device& device : context.devices) {
    set_random_state(device.generator, device.random_state);
    at::autocast::set_autocast_enabled(device.type, device.autocast);
    at::autocast::set_autocast_dtype(device.type, device.autocast_dtype);
  }
}

/// While it lives, everything is as it was at the first call.
class SecondCall {
 public:
  explicit SecondCall(const CallContext& context) {
    for (const CallContext::Device& device : context.devices) {
      before_.devices.push_back(device_context(device.generator.device()));
    }
    apply_context(context);
  }
  SecondCall(const SecondCall&) = delete;
  SecondCall& operator=(const SecondCall&) = delete;
  ~SecondCall() { apply_context(before_); }

 private:
  CallContext before_;
  at::AutoGradMode with_graph_{true};
};

/// Where the inner run leaves the gradient of an argument.
class Capture final : public Node {
 public:
  variable_list apply(variable_list&& gradients) override {
    gradient_ = std::move(gradients.at(0));
    return {};
  }
  void set_gradient(at::Tensor gradient) { gradient_ = std::move(gradient); }
  [[nodiscard]] at::Tensor take_gradient() { return std::move(gradient_); }

 private:
  at::Tensor gradient_;
};

/// Tells a unit's hooks of the second call of its forward.
class RecomputeScope {
 public:
  explicit RecomputeScope(UnitHooks* unit) : unit_(unit) {
    if (unit_ != nullptr) {
      unit_->before_recompute();
    }
  }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;
  ~RecomputeScope() {
    if (unit_ != nullptr) {
      unit_->after_recompute();
    }
  }

 private:
  UnitHooks* unit_;
};

/// What a tensor in the result was at the first call.
struct Result {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;

  explicit Result(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()) {}
  [[nodiscard]] bool is_like(const at::Tensor& tensor) const {
    return tensor.sizes() == sizes && tensor.scalar_type() == dtype;
  }
};

bool is_differentiable(at::ScalarType dtype) {
  return at::isFloatingType(dtype) || at::isComplexType(dtype);
}

/// The node behind the results of a checkpointed call. Its inputs are gradients
/// of the differentiable ones, its outputs those of the arguments that require
/// grad, and the news that gradients of a unit's parameters are there.
class CheckpointNode final : public Node {
 public:
  CheckpointNode(std::span<at::Tensor* const> results,
                 std::span<const at::Tensor> arguments,
                 std::shared_ptr<const CallContext> context,
                 std::unique_ptr<CallAgain> again,
                 std::shared_ptr<UnitHooks> unit)
      : context_(std::move(context)),
        again_(std::move(again)),
        unit_(std::move(unit)) {
    for (const at::Tensor* result : results) {
      results_.emplace_back(*result);
    }
    keep(arguments);
    for (const at::Tensor& argument : arguments) {
      wants_gradient_.push_back(argument.requires_grad());
      if (argument.requires_grad()) {
        add_next_edge(torch::autograd::impl::gradient_edge(argument));
      }
    }
    if (!open_forwards.empty()) {
      for (Edge& edge : open_forwards.back()->recomputed_edges()) {
        add_next_edge(std::move(edge));
      }
    }
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "[checkpoint] the caller of backward wants a graph of the "
                "gradient (create_graph), which a checkpointed call does not "
                "have. Make the call without checkpoint.");
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(again_,
                "[checkpoint] backward came a second time to a call whose "
                "arguments the first one freed. Call the first with "
                "retain_graph.");
    std::vector<at::Tensor> arguments;
    std::vector<at::Tensor> wanted;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const at::Tensor saved =
          kept_[i] ? kept_[i]->get() : arguments_[i].unpack();
      if (wants_gradient_[i]) {
        wanted.push_back(with_node_behind(saved, make_node<Capture>()));
        arguments.push_back(wanted.back());
      } else {
        arguments.push_back(saved.detach());
      }
    }
    run_backward(call_again(arguments), gradients, wanted);
    variable_list result;
    for (const at::Tensor& argument : wanted) {
      result.push_back(
          static_cast<Capture&>(*argument.grad_fn()).take_gradient());
    }
    // Units are told by being called: on a device, by its thread.
    const auto first = std::ranges::find_if(
        gradients,
        [](const at::Tensor& gradient) { return gradient.defined(); });
    const bool on_device = first != gradients.end() && first->is_cuda();
    result.resize(
        num_outputs(),
        on_device ? at::empty({0}, at::device(first->device())) : at::Tensor());
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    arguments_.clear();
    kept_.clear();
    again_.reset();
  }

  std::string name() const override { return "accordion::checkpoint"; }

 private:
  /// In memory, or where the unit wants them.
  void keep(std::span<const at::Tensor> arguments) {
    std::vector<bool> elsewhere;
    for (const at::Tensor& argument : arguments) {
      kept_.push_back(unit_ ? unit_->keep_argument(argument) : nullptr);
      elsewhere.push_back(kept_.back() != nullptr);
      arguments_.push_back(elsewhere.back()
                               ? SavedVariable()
                               : SavedVariable(argument, /*is_output=*/false));
    }
    again_->let_go(elsewhere);
  }

  std::vector<at::Tensor> call_again(std::span<const at::Tensor> arguments) {
    const SecondCall second_call(*context_);
    const RecomputeScope scope(unit_.get());
    std::vector<at::Tensor> results = again_->run(arguments);
    const bool same = std::ranges::equal(
        results_, results, [](const Result& first, const at::Tensor& second) {
          return first.is_like(second);
        });
    TORCH_CHECK(same,
                "[checkpoint] called again in backward, the function returned "
                "other tensors than at first, in number, shape or dtype. Let "
                "it depend on its arguments, captured tensors and random "
                "numbers alone, or call it without checkpoint.");
    return results;
  }

  /// The gradients of `wanted` go to their Captures, all others where any
  /// backward would bring them.
  void run_backward(const std::vector<at::Tensor>& results,
                    const variable_list& gradients,
                    const std::vector<at::Tensor>& wanted) {
    variable_list roots;
    variable_list root_gradients;
    auto gradient = gradients.begin();
    for (const at::Tensor& result : results) {
      if (!is_differentiable(result.scalar_type())) {
        continue;
      }
      if (gradient->defined() && result.requires_grad()) {
        roots.push_back(result);
        root_gradients.push_back(*gradient);
      }
      ++gradient;
    }
    if (roots.empty()) {
      return;
    }
    const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
    if (chosen == nullptr || chosen->empty()) {
      torch::autograd::backward(roots, root_gradients, /*retain_graph=*/false);
    } else if (!wanted.empty()) {
      // The caller wants gradients of certain tensors: no others are added to.
      const variable_list found = torch::autograd::grad(
          roots, wanted, root_gradients, /*retain_graph=*/false,
          /*create_graph=*/false, /*allow_unused=*/true);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        static_cast<Capture&>(*wanted[i].grad_fn()).set_gradient(found[i]);
      }
    }
  }

  std::shared_ptr<const CallContext> context_;
  std::unique_ptr<CallAgain> again_;
  std::shared_ptr<UnitHooks> unit_;
  std::vector<Result> results_;
  std::vector<SavedVariable> arguments_;  // undefined where kept elsewhere
  std::vector<std::unique_ptr<KeptTensor>> kept_;  // null where in memory
  std::vector<bool> wants_gradient_;
};

}  // namespace

std::shared_ptr<const CallContext> call_context(
    std::span<const at::Tensor> inputs) {
  auto context = std::make_shared<CallContext>();
  std::vector<at::Device> devices = {at::kCPU};
  for (const at::Tensor& input : inputs) {
    // Nothing is drawn on meta, and it has no generator.
    if (!input.is_meta() &&
        std::ranges::find(devices, input.device()) == devices.end()) {
      devices.push_back(input.device());
    }
  }
  for (const at::Device device : devices) {
    context->devices.push_back(device_context(device));
  }
  return context;
}

at::Tensor stand_in() {
  return at::empty({0});
}

FirstCall::FirstCall() : before_(is_first_call) {
  is_first_call = true;
}

FirstCall::~FirstCall() {
  is_first_call = before_;
}

bool in_first_call() {
  return is_first_call;
}

OpenForward::OpenForward(UnitHooks& unit) {
  open_forwards.push_back(&unit);
}

OpenForward::~OpenForward() {
  open_forwards.pop_back();
}

void record_call(std::span<at::Tensor* const> outputs,
                 std::span<const at::Tensor> inputs,
                 std::shared_ptr<const CallContext> context,
                 std::unique_ptr<CallAgain> again,
                 std::shared_ptr<UnitHooks> unit) {
  const NodePtr node = make_node<CheckpointNode>(
      outputs, inputs, std::move(context), std::move(again), std::move(unit));
  for (at::Tensor* output : outputs) {
    if (is_differentiable(output->scalar_type())) {
      *output = with_node_behind(*output, node);
    }
  }
}

}  // namespace accordion::detail
