// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/running_graph.h"

#include <torch/csrc/autograd/graph_task.h>

namespace accordion {

int running_backward() {
  return torch::autograd::get_current_graph_task_id();
}

bool inside_backward() {
  return running_backward() != kNoBackward;
}

bool backward_runs(const torch::autograd::Node& node) {
  using torch::autograd::Node;
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  Node* const key = const_cast<Node*>(&node);  // what the engine's sets hold
  if (nodes == nullptr || !nodes->contains(key)) {
    return false;
  }
  // Where the caller named the inputs that it wants gradients of, nodes that do
  // not lead to them are left out.
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) {
    return true;
  }
  const auto entry = chosen->find(key);
  return entry != chosen->end() && entry->second.needed_;
}

}  // namespace accordion
