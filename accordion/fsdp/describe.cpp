// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/describe.h"

#include <unordered_map>
#include <unordered_set>

#include <c10/util/accumulate.h>
#include <torch/nn/modules/embedding.h>

#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

/// What the module tree knows of its parameters.
struct Registry {
  struct Entry {
    torch::Tensor tensor;
    std::vector<std::string> names;
  };
  std::vector<Entry> entries;  // in order of registration
  std::unordered_map<const c10::TensorImpl*, std::size_t> index;
  std::unordered_set<const c10::TensorImpl*> embeddings;

  explicit Registry(const torch::nn::Module& root) { visit(root, ""); }

  void visit(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (item.value().defined()) {
        add(prefix + item.key(), item.value(), is_embedding(module, prefix));
      }
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), prefix + child.key() + ".");
    }
  }

  /// LibTorch's, or what its name says.
  static bool is_embedding(const torch::nn::Module& module,
                           const std::string& prefix) {
    return dynamic_cast<const torch::nn::EmbeddingImpl*>(&module) != nullptr ||
           prefix.find("embed") != std::string::npos ||
           prefix.find("wte") != std::string::npos;
  }

  void add(std::string name, const torch::Tensor& tensor, bool embedding) {
    const c10::TensorImpl* key = tensor.unsafeGetTensorImpl();
    const auto [entry, is_new] = index.try_emplace(key, entries.size());
    if (is_new) {
      entries.push_back({tensor, {}});
    }
    entries[entry->second].names.push_back(std::move(name));
    if (embedding) {
      embeddings.insert(key);
    }
  }
};

ParameterDescription describe_parameter(const FsdpUnit& unit, int index,
                                        const Registry& registry) {
  const ShardedParameter& parameter =
      unit.parameters()[static_cast<std::size_t>(index)];
  const ParameterSpec& spec =
      unit.layout().parameters()[static_cast<std::size_t>(index)];
  ParameterDescription result{
      .shape = spec.shape,
      .stored_dtype = spec.stored_dtype,
      .gathered_dtype = spec.gathered_dtype,
      .placement = spec.placement == Placement::Replicate
                       ? ParameterPlacement::Replicate
                       : ParameterPlacement::Shard,
      .requires_grad = parameter.tensor().requires_grad(),
      .piece = parameter.piece(),
      .bytes = parameter.piece().numel() * element_bytes(spec.stored_dtype)};
  for (const at::Tensor& tensor : parameter.tensors()) {
    const auto found = registry.index.find(tensor.unsafeGetTensorImpl());
    if (found != registry.index.end()) {
      const auto& names = registry.entries[found->second].names;
      result.names.insert(result.names.end(), names.begin(), names.end());
      result.per_token |= registry.embeddings.contains(found->first);
    }
  }
  if (result.names.empty() || result.names.front() != parameter.name()) {
    result.names = {parameter.name()};  // described from a module inside
  }
  return result;
}

UnitDescription describe_unit(const FsdpUnit& unit, const Registry& registry) {
  UnitDescription result{
      .name = unit.name(),
      .gathers_in_place = unit.gathers_in_place(),
      .sections = unit.layout().sections(),
      .shard_bytes = unit.layout().sharded_bytes(),
      .unsharded_bytes = unit.unsharded_bytes(),
      .gradient_bytes = unit.gradient_bytes(GradientUse::Reduced)};
  for (std::size_t i = 0; i < unit.parameters().size(); ++i) {
    result.parameters.push_back(
        describe_parameter(unit, static_cast<int>(i), registry));
  }
  return result;
}

/// The innermost of `units`, outer before inner, around the unit `name`.
int parent_of(const std::string& name,
              const std::vector<UnitDescription>& units) {
  for (std::size_t i = units.size(); i-- > 0;) {
    if (units[i].name.empty() || name.starts_with(units[i].name + ".")) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

/// Heads have as many rows as embeddings.
void mark_per_token(std::vector<UnitDescription>& units) {
  std::unordered_set<std::int64_t> vocabularies;
  for (const UnitDescription& unit : units) {
    for (const ParameterDescription& parameter : unit.parameters) {
      if (parameter.per_token && parameter.shape.size() == 2) {
        vocabularies.insert(parameter.shape[0]);
      }
    }
  }
  for (UnitDescription& unit : units) {
    for (ParameterDescription& parameter : unit.parameters) {
      parameter.per_token =
          !parameter.shape.empty() && vocabularies.contains(parameter.shape[0]);
    }
  }
}

std::vector<ParameterDescription> ignored_parameters(const FsdpState& state,
                                                     const Registry& registry) {
  std::unordered_set<const c10::TensorImpl*> ours;
  for (const auto& unit : state.executor->units()) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      for (const at::Tensor& tensor : parameter.tensors()) {
        ours.insert(tensor.unsafeGetTensorImpl());
      }
    }
  }
  std::vector<ParameterDescription> result;
  for (const Registry::Entry& entry : registry.entries) {
    if (!ours.contains(entry.tensor.unsafeGetTensorImpl())) {
      result.push_back(
          {.names = entry.names,
           .shape = entry.tensor.sizes().vec(),
           .placement = ParameterPlacement::Ignore,
           .requires_grad = entry.tensor.requires_grad(),
           .bytes = static_cast<std::int64_t>(entry.tensor.nbytes())});
    }
  }
  return result;
}

template <class Items>
std::int64_t sum_of_numel(const Items& items) {
  std::int64_t sum = 0;
  for (const auto& item : items) {
    sum += item.numel();
  }
  return sum;
}

std::vector<std::string> offloaded_by(const FsdpOptions& options) {
  std::vector<std::string> names;
  if (options.offload && options.offload->gradients) {
    names.emplace_back("gradients");
  }
  if (options.offload && options.offload->parameters) {
    names.emplace_back("parameters");
  }
  if (options.activation_checkpointing &&
      options.activation_checkpointing->offload) {
    names.emplace_back("activations");
  }
  return names;
}

}  // namespace

std::int64_t ParameterDescription::numel() const {
  return c10::multiply_integers(shape);
}

std::int64_t UnitDescription::numel() const {
  return sum_of_numel(parameters);
}

std::int64_t ModuleDescription::numel() const {
  return sum_of_numel(units);
}

ModuleDescription describe(const torch::nn::Module& root) {
  const FsdpState& state = unsettled_state(root, "describe");
  Executor& executor = *state.executor;
  const Registry registry(root);
  ModuleDescription result{
      .strategy = state.options.strategy,
      .axes = state.mesh.axes(),
      .rank = state.mesh.rank(),
      .gather_ranks = executor.units().front()->groups().gather->world_size(),
      .precision = state.options.precision,
      .prefetch = state.options.prefetch,
      .prefetch_bytes = state.options.prefetch_bytes,
      .step_in_backward = state.options.step_in_backward,
      .offloaded = offloaded_by(state.options),
      .ignored = ignored_parameters(state, registry),
      .bytes = sharded_bytes(root)};
  for (std::size_t i = 0; i < executor.units().size(); ++i) {
    UnitDescription unit = describe_unit(*executor.units()[i], registry);
    unit.parent = parent_of(unit.name, result.units);
    const UnitSettings& settings = executor.settings_of(static_cast<int>(i));
    unit.reshard_after_forward = settings.reshard_after_forward;
    unit.checkpoints_activations = settings.checkpoints_activations;
    result.units.push_back(std::move(unit));
  }
  mark_per_token(result.units);
  for (const WrapDecision& decision : state.decisions) {
    if (!decision.is_unit) {
      result.dissolved.push_back(decision);
    }
  }
  return result;
}

}  // namespace accordion
