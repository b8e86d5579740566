// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/meta_init.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

// [Note: how MetaInit sees every operator]
// A dispatch key that no tensor carries and nothing else uses is switched on
// for the thread, so that each operator called there comes first to the kernel
// at the end of this file. The key is off while an operator runs: what happens
// inside it is its own affair.
namespace accordion {

namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr int kNotAFactory = -1;

/// Factories whose tensors are made for real: a number given as an argument, a
/// file that is mapped, and those for which LibTorch has no meta kernel.
constexpr std::array<std::string_view, 5> kRealFactories = {
    "aten::scalar_tensor", "aten::from_file", "aten::randperm",
    "aten::tril_indices", "aten::triu_indices"};

/// Switches the key for this thread; returns whether it was on.
bool set_meta_init(bool on) {
  const bool was_on = c10::impl::tls_is_dispatch_key_included(kKey);
  c10::impl::tls_set_dispatch_key_included(kKey, on);
  return was_on;
}

bool holds_tensors(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TensorType ||
         std::ranges::any_of(type.containedTypes(), [](const auto& inner) {
           return holds_tensors(*inner);
         });
}

/// Position of the device among the arguments of an operator that makes a
/// tensor of nothing.
int factory_device(const c10::FunctionSchema& schema) {
  if (std::ranges::find(kRealFactories, schema.name()) !=
      kRealFactories.end()) {
    return kNotAFactory;
  }
  int device = kNotAFactory;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (holds_tensors(*argument.real_type())) {
      return kNotAFactory;
    }
    if (argument.name() == "device") {
      device = static_cast<int>(i);
    }
  }
  return device;
}

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

bool touches_meta(const c10::IValue& value) {
  if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    return std::ranges::any_of(
        list, [](const at::Tensor& t) { return t.defined() && t.is_meta(); });
  }
  return is_defined_tensor(value) && value.toTensor().is_meta();
}

/// A constant with values beside tensors without: the result has none either.
void move_to_meta(c10::IValue& value) {
  if (is_defined_tensor(value)) {
    value = value.toTensor().to(at::kMeta);
  } else if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (at::Tensor& tensor : list) {
      tensor = tensor.to(at::kMeta);
    }
    value = std::move(list);
  }
}

/// Brings an operator's arguments to meta where the constructor meant that.
/// Returns whether a tensor without values takes part.
bool route(const c10::FunctionSchema& schema,
           std::span<c10::IValue> arguments) {
  const int device = factory_device(schema);
  if (device != kNotAFactory) {
    c10::IValue& where = arguments[static_cast<std::size_t>(device)];
    if (where.isNone()) {
      where = c10::Device(at::kMeta);
    }
    return where.toDevice().is_meta();
  }
  if (std::ranges::none_of(arguments, touches_meta)) {
    return false;
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    // What is written to stays where it is.
    if (schema.arguments()[i].alias_info() == nullptr) {
      move_to_meta(arguments[i]);
    }
  }
  return true;
}

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
  const RealInit off;
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const bool on_meta = route(schema, std::span(*stack).last(count));
  try {
    op.callBoxed(stack);
  } catch (c10::Error& error) {
    if (on_meta) {
      error.add_context(c10::str(
          "[MetaInit] ", schema.name(),
          " failed on a tensor that has no "
          "values, because it was made under accordion::MetaInit. Compute "
          "what needs values in a scope with an accordion::RealInit."));
    }
    throw;
  }
}

}  // namespace

MetaInit::MetaInit() : was_on_(set_meta_init(true)) {}
MetaInit::~MetaInit() {
  set_meta_init(was_on_);
}

RealInit::RealInit() : was_on_(set_meta_init(false)) {}
RealInit::~RealInit() {
  set_meta_init(was_on_);
}

}  // namespace accordion

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&accordion::run_operator>());
}
