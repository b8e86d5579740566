// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/full_state_dict.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "accordion/comm/gather_values.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/guarded_visitor.h"

namespace accordion {

namespace {

/// The whole [global shape] of what ranks hold of a parameter's state, on every
/// rank.
at::Tensor gather_pieces(Communicator& ranks, const LocalParameter& local,
                         const at::Tensor& piece, const std::string& label) {
  struct Bounds {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  const auto bounds =
      gather_values(ranks, Bounds{local.begin, local.end}, label);
  std::int64_t longest = 0;
  for (const Bounds& of_rank : bounds) {
    longest = std::max(longest, of_rank.end - of_rank.begin);
  }
  const at::Tensor mine = at::zeros({longest}, piece.options());
  mine.narrow(0, 0, piece.numel()).copy_(piece);
  const at::Tensor all =
      at::empty({ranks.world_size(), longest}, piece.options());
  const GatherPart part{.local = mine.const_data_ptr(),
                        .local_dtype = DType::Uint8,
                        .full = all.mutable_data_ptr(),
                        .full_dtype = DType::Uint8,
                        .numel = static_cast<std::int64_t>(mine.nbytes())};
  ranks.all_gather_into({&part, 1}, nullptr, label).wait();
  at::Tensor whole = at::empty(local.global_shape, piece.options());
  for (std::size_t rank = 0; rank < bounds.size(); ++rank) {
    const std::int64_t numel = bounds[rank].end - bounds[rank].begin;
    whole.view({-1})
        .narrow(0, bounds[rank].begin, numel)
        .copy_(all[static_cast<std::int64_t>(rank)].narrow(0, 0, numel));
  }
  return whole;
}

void visit_state(torch::nn::Module& root, const LocalParameter& local,
                 const ParameterState& state, const StateVisitor& visit) {
  for (const auto& [field, tensor] : state.tensors) {
    const std::string name = "optimizer/" + field + "/" + local.name;
    visit(name, tensor.dim() == 0 ? tensor.clone()
                                  : gather_pieces(shard_communicator(root),
                                                  local, tensor, name));
  }
  for (const auto& [count, value] : state.counts) {
    visit("optimizer/" + count + "/" + local.name,
          at::scalar_tensor(value, at::kLong));
  }
}

}  // namespace

void full_state_dict(torch::nn::Module& root, OptimizerStateAccess& optimizer,
                     const StateVisitor& visit) {
  const at::NoGradGuard no_grad;
  detail::GuardedVisitor visitor(visit);
  const bool is_first = world_communicator(root).rank() == 0;
  const StateVisitor on_first = [&](const std::string& name,
                                    const at::Tensor& tensor) {
    if (is_first) {
      visitor(name, tensor);
    }
  };
  full_parameters(root, [&](const std::string& name, const at::Tensor& whole) {
    on_first("model/" + name, whole);
  });
  for (const auto& item : root.named_buffers()) {
    if (item.value().defined()) {
      on_first("model/" + item.key(), item.value().clone());
    }
  }
  for (const LocalParameter& local : local_parameters(root)) {
    if (const auto state = optimizer.find(local)) {
      visit_state(root, local, *state, on_first);
    }
  }
  visitor.rethrow();
}

}  // namespace accordion
