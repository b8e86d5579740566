// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/sharded_module.h"

#include <unordered_map>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/held_memory.h"
#include "accordion/fsdp/section_state.h"

namespace accordion {

namespace {

/// Ranks that hold the same elements of a parameter, and this one's number.
struct Replica {
  int number = 0;
  int count = 1;
};

Replica replica_of(const FsdpUnit& unit, int index) {
  const SectionState& section = unit.sections()[static_cast<std::size_t>(
      unit.layout().section_of(index))];
  const CommGroups& groups = unit.groups();
  const int number = groups.replicate ? groups.replicate->rank() : 0;
  if (section.sharded) {
    return {number, groups.num_replicas()};
  }
  return {number * groups.reduce->world_size() + groups.reduce->rank(),
          groups.num_ranks()};
}

LocalParameter local_parameter(const FsdpUnit& unit, int index) {
  const ShardedParameter& parameter =
      unit.parameters()[static_cast<std::size_t>(index)];
  const at::Tensor& gradient = parameter.tensor().grad();
  const Replica replica = replica_of(unit, index);
  return {
      .name = parameter.name(),
      .global_shape = parameter.faces().unsharded.sizes().vec(),
      .begin = parameter.piece().begin,
      .end = parameter.piece().end,
      .piece = parameter.faces().piece_data.view({-1}),
      .gradient = gradient.defined() ? gradient.view({-1}) : at::Tensor(),
      .parameter = parameter.tensor(),
      .requires_grad = parameter.requires_grad(),
      .replicas = replica.count,
      .replica = replica.number,
  };
}

/// FQNs by the tensors that modules hold; of tensors that are one parameter,
/// the one under which it is listed.
using Names = std::unordered_map<const c10::TensorImpl*, std::string>;

Names names_of_units(const FsdpState& state) {
  Names names;
  for (const auto& unit : state.executor->units()) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      for (const at::Tensor& tensor : parameter.tensors()) {
        names.emplace(tensor.unsafeGetTensorImpl(), parameter.name());
      }
    }
  }
  return names;
}

struct Located {
  FsdpUnit* unit;
  int parameter;
};

const SectionState& section_of(const Located& at) {
  return at.unit->sections()[static_cast<std::size_t>(
      at.unit->layout().section_of(at.parameter))];
}

Located locate(const FsdpState& state, std::string_view name,
               const char* caller) {
  for (const auto& unit : state.executor->units()) {
    for (std::size_t i = 0; i < unit->parameters().size(); ++i) {
      if (unit->parameters()[i].name() == name) {
        return {unit.get(), static_cast<int>(i)};
      }
    }
  }
  TORCH_CHECK_VALUE(false, "[", caller, "] no parameter is named '", name,
                    "'. accordion::local_parameters(net) lists the names.");
}

/// The whole of a parameter, from the flat tensor of its section (parameters or
/// gradients) that this rank holds.
at::Tensor gather_parameter(const Located& at, const at::Tensor& flat) {
  const std::string& name =
      at.unit->parameters()[static_cast<std::size_t>(at.parameter)].name();
  return at.unit
      ->whole_of(at.parameter, at.unit->gather_flat(section_of(at), flat, name))
      .clone();
}

}  // namespace

std::vector<LocalParameter> local_parameters(const torch::nn::Module& root) {
  const FsdpState& state = writable_state(root, "local_parameters");
  std::vector<LocalParameter> result;
  for (const auto& unit : state.executor->units()) {
    for (std::size_t i = 0; i < unit->parameters().size(); ++i) {
      result.push_back(local_parameter(*unit, static_cast<int>(i)));
    }
  }
  return result;
}

void settle(const torch::nn::Module& root) {
  (void)writable_state(root, "settle");
}

void adopt_assignments(torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  for (const auto& unit :
       sharded_state(root, "adopt_assignments").executor->units()) {
    unit->adopt_assignments();
  }
}

std::vector<std::pair<std::string, torch::Tensor>> ignored_parameters(
    const torch::nn::Module& root) {
  Names names = names_of_units(sharded_state(root, "ignored_parameters"));
  std::vector<std::pair<std::string, torch::Tensor>> result;
  for (const auto& item : root.named_parameters()) {
    if (names.try_emplace(item.value().unsafeGetTensorImpl(), item.key())
            .second) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

std::map<std::string, std::string> parameter_aliases(
    const torch::nn::Module& root) {
  Names names = names_of_units(sharded_state(root, "parameter_aliases"));
  std::map<std::string, std::string> result;
  for (const auto& item : root.named_parameters()) {
    const auto known =
        names.try_emplace(item.value().unsafeGetTensorImpl(), item.key()).first;
    if (known->second != item.key()) {
      result.emplace(item.key(), known->second);
    }
  }
  return result;
}

std::vector<FlatShard> flat_shards(const torch::nn::Module& root) {
  const FsdpState& state = writable_state(root, "flat_shards");
  std::vector<FlatShard> result;
  for (const auto& unit : state.executor->units()) {
    for (std::size_t s = 0; s < unit->layout().sections().size(); ++s) {
      const SectionState& section = unit->sections()[s];
      FlatShard shard{
          .unit = unit->name(),
          .parameters = section.shard,
          .gradients = section.trainable ? section.gradient : at::Tensor(),
          .on_host = section.on_host,
          .gradient_squares = section.gradient_squares,
          .sharded = section.sharded};
      shard.copy = unit->copy_of(static_cast<int>(s));
      if (section.paged_shard) {
        shard.paged_parameters = {state.executor->pages(),
                                  *section.paged_shard};
      }
      if (section.paged_gradient && section.trainable) {
        shard.paged_gradients = {state.executor->pages(),
                                 *section.paged_gradient};
      }
      for (const int i : unit->layout().sections()[s].parameters) {
        shard.pieces.push_back(local_parameter(*unit, i));
        shard.offsets.push_back(unit->parameters()[static_cast<std::size_t>(i)]
                                    .piece()
                                    .shard_offset);
      }
      result.push_back(std::move(shard));
    }
  }
  return result;
}

std::shared_ptr<PagedArrays> offloaded_shards(const torch::nn::Module& root) {
  return unsettled_state(root, "offloaded_shards").executor->pages();
}

std::shared_ptr<PagedArrays> offloaded_activations(
    const torch::nn::Module& root) {
  const auto& activations =
      unsettled_state(root, "offloaded_activations").executor->activations();
  return activations
             ? std::shared_ptr<PagedArrays>(activations, &activations->pages())
             : nullptr;
}

std::uint64_t trainable_version(const torch::nn::Module& root) {
  return unsettled_state(root, "trainable_version")
      .executor->trainable_version();
}

Communicator& world_communicator(const torch::nn::Module& root) {
  return sharded_state(root, "world_communicator").mesh.world();
}

Communicator& shard_communicator(const torch::nn::Module& root) {
  const FsdpState& state = sharded_state(root, "shard_communicator");
  return *state.executor->units().front()->groups().gather;
}

torch::Tensor full_parameter(const torch::nn::Module& root,
                             std::string_view name) {
  const FsdpState& state = sharded_state(root, "full_parameter");
  const at::NoGradGuard no_grad;
  const Located at = locate(state, name, "full_parameter");
  at.unit->adopt_assignments();
  return gather_parameter(at, section_of(at).shard);
}

torch::Tensor full_gradient(const torch::nn::Module& root,
                            std::string_view name) {
  const FsdpState& state = sharded_state(root, "full_gradient");
  const at::NoGradGuard no_grad;
  const Located at = locate(state, name, "full_gradient");
  const auto& parameter =
      at.unit->parameters()[static_cast<std::size_t>(at.parameter)];
  TORCH_CHECK_VALUE(parameter.requires_grad(), "[full_gradient] parameter '",
                    name,
                    "' is frozen (requires_grad is false), so it has none");
  at.unit->adopt_assignments();
  if (!parameter.tensor().grad().defined() &&
      !at.unit->has_partial_gradients()) {
    parameter.faces().piece_gradient.zero_();  // was reset
  }
  return gather_parameter(at, section_of(at).gradient);
}

StepSchedule step_schedule(const torch::nn::Module& root) {
  return unsettled_state(root, "step_schedule").executor->schedule();
}

void set_step_schedule(torch::nn::Module& root, StepSchedule schedule) {
  sharded_state(root, "set_step_schedule")
      .executor->set_schedule(std::move(schedule));
}

ShardedBytes sharded_bytes(const torch::nn::Module& root) {
  return sharded_bytes(*unsettled_state(root, "sharded_bytes").executor);
}

}  // namespace accordion
