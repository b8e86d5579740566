// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace accordion {

/// Handle of an autograd node: shared_ptr up to LibTorch 2.14, intrusive_ptr
/// after.
using NodePtr = decltype(torch::autograd::impl::grad_accumulator(
    std::declval<const torch::autograd::Variable&>()));

inline constexpr bool kNodesAreShared =
    std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>;

using WeakNodePtr =
    std::conditional_t<kNodesAreShared, std::weak_ptr<torch::autograd::Node>,
                       c10::weak_intrusive_ptr<torch::autograd::Node>>;

/// Makes an autograd node in the ownership that this LibTorch gives nodes.
template <class T, class... Args>
NodePtr make_node(Args&&... args) {
  if constexpr (kNodesAreShared) {
    // Found by argument: LibTorch 2.15 has no deleteNode.
    return NodePtr(new T(std::forward<Args>(args)...),
                   [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  }
}

/// A tensor of the same memory and version counter with `node` behind it. It is
/// no view to autograd, so that writing to it in place keeps the node in the
/// graph.
inline at::Tensor with_node_behind(const at::Tensor& tensor,
                                   const NodePtr& node) {
  at::Tensor result = tensor.tensor_data();
  torch::autograd::create_gradient_edge(result, node);
  return result;
}

}  // namespace accordion
