// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fully_shard.h"

#include <set>
#include <unordered_map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/buffers.h"
#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/unit_wrapping.h"
#include "accordion/fsdp/verify_ranks.h"
#include "accordion/module/materialize.h"

namespace accordion {

namespace {

constexpr const char* kShardAxis = "shard";
constexpr const char* kReplicateAxis = "replicate";

void check_mesh(const DeviceMesh& mesh) {
  const bool has_replicas = mesh.has_axis(kReplicateAxis);
  TORCH_CHECK_VALUE(
      mesh.has_axis(kShardAxis) &&
          mesh.axes().size() == (has_replicas ? 2U : 1U),
      "[fully_shard] the mesh needs one axis named '", kShardAxis,
      "' over all ranks, or two named '", kReplicateAxis, "' and '", kShardAxis,
      "': DeviceMeshOptions{.axes = {{\"replicate\", 2}, {\"shard\", 4}}}");
}

void check_options(const FsdpOptions& options, const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(options.prefetch >= 0 && options.prefetch_bytes >= 0,
                    "[fully_shard] prefetch is ", options.prefetch,
                    " units and ", options.prefetch_bytes,
                    " bytes; both count what is gathered ahead, 0 or more");
  for (const auto& dtype :
       {options.precision.param_dtype, options.precision.reduce_dtype,
        options.precision.output_dtype, options.precision.buffer_dtype}) {
    TORCH_CHECK_VALUE(!dtype || c10::isFloatingType(*dtype),
                      "[fully_shard] precision is ", c10::toString(*dtype),
                      "; choose a floating-point dtype");
  }
  TORCH_CHECK_VALUE(options.gradient_divide_factor.value_or(1.0) > 0,
                    "[fully_shard] gradient_divide_factor is ",
                    options.gradient_divide_factor.value_or(1.0),
                    "; sums of gradients are divided by it, so it is above 0");
  TORCH_CHECK_VALUE(options.min_shard_numel >= 0,
                    "[fully_shard] min_shard_numel is ",
                    options.min_shard_numel, "; it counts elements, 0 or more");
  TORCH_CHECK_VALUE(
      !options.activation_checkpointing ||
          options.activation_checkpointing->every > 0,
      "[fully_shard] activation_checkpointing.every is ",
      options.activation_checkpointing->every,
      "; every n-th unit keeps no activations, so it is 1 or more");
  const int ranks = mesh.size(kShardAxis);
  TORCH_CHECK_VALUE(
      options.reshard_to_ranks >= 0 && (options.reshard_to_ranks == 0 ||
                                        ranks % options.reshard_to_ranks == 0),
      "[fully_shard] reshard_to_ranks is ", options.reshard_to_ranks,
      "; choose a divisor of the shard axis' ", ranks,
      " ranks, usually the ranks of a host, or 0");
  TORCH_CHECK_VALUE(
      options.reshard_to_ranks == 0 || options.strategy == Strategy::FullShard,
      "[fully_shard] reshard_to_ranks is ", options.reshard_to_ranks,
      ", but only full_shard reshards between forward and "
      "backward. Leave it 0.");
  TORCH_CHECK_VALUE(
      options.accumulation != Accumulation::DeferredAllReduce ||
          mesh.size(kReplicateAxis) > 1,
      "[fully_shard] accumulation is DeferredAllReduce, but the mesh has no "
      "axis 'replicate' of 2 or more ranks to put an all-reduce off for");
}

void check_offload(const FsdpOptions& options) {
  if (!options.offload) {
    return;
  }
  check_target(options.offload->to, "fully_shard");
  TORCH_CHECK_VALUE(options.offload->gradients || options.offload->parameters,
                    "[fully_shard] offload names neither gradients nor "
                    "parameters. Set one of them, or leave offload unset.");
  TORCH_CHECK_VALUE(!options.offload->gradients || !options.step_in_backward,
                    "[fully_shard] offload.gradients is set, but with "
                    "step_in_backward no gradient stays that could be "
                    "offloaded. Set offload.gradients = false.");
}

/// Values may come from the CPU, or from nowhere, to any mesh.
void check_devices(const std::vector<UnitMembers>& units,
                   const Communicator& world) {
  const c10::Device device = device_of(world);
  for (const UnitMembers& unit : units) {
    for (const MemberParameter& parameter : unit.parameters) {
      const c10::Device is_on = parameter.tensor.device();
      if (is_on.is_cpu() || is_on.is_meta() || is_on == device) {
        continue;
      }
      TORCH_CHECK_VALUE(device.is_cuda(), "[fully_shard] parameter '",
                        parameter.name, "' is on ", is_on,
                        ", and the mesh communicates between CPUs. Connect the "
                        "mesh with DeviceMeshOptions{.backend = \"nccl\"}, or "
                        "move the module to the CPU before fully_shard.");
      TORCH_CHECK_VALUE(false, "[fully_shard] parameter '", parameter.name,
                        "' is on ", is_on, ", and the mesh communicates from ",
                        device,
                        ". Move the module there before fully_shard, or leave "
                        "it on the CPU or on meta.");
    }
  }
}

/// What a device's host can hold for it ([Note: shards on the host]).
void check_device_options(const FsdpOptions& options, const DeviceMesh& mesh) {
  if (!mesh.world().runs_behind_host()) {
    return;
  }
  if (const std::optional<OffloadPolicy>& offload = options.offload) {
    TORCH_CHECK_VALUE(offload->to.host != nullptr,
                      "[fully_shard] offload is set, but not to the host, "
                      "whose memory is all that a device reaches. Use "
                      "offload_to_host(pool), or leave it unset.");
    TORCH_CHECK_VALUE(
        offload->gradients && offload->parameters,
        "[fully_shard] offload names ",
        offload->gradients ? "gradients" : "parameters",
        " alone, but of a device's shards both lie on the host, where the "
        "optimizer steps them, or neither. Set offload.gradients and "
        "offload.parameters, or leave offload unset.");
    TORCH_CHECK_VALUE(mesh.size(kReplicateAxis) == 1,
                      "[fully_shard] offload is set, but over replicas "
                      "gradients are all-reduced on the device. Leave it "
                      "unset, or use a mesh without an axis 'replicate'.");
  }
  TORCH_CHECK_VALUE(!options.activation_checkpointing ||
                        !options.activation_checkpointing->offload,
                    "[fully_shard] activation_checkpointing.offload is set, "
                    "but activations on a CUDA device are not offloaded. Leave "
                    "it unset.");
}

std::shared_ptr<Communicator> axis_communicator(const DeviceMesh& mesh,
                                                const char* axis) {
  // Shares the mesh's ownership.
  return {std::make_shared<DeviceMesh>(mesh), &mesh.communicator(axis)};
}

std::shared_ptr<Communicator> world_of(const DeviceMesh& mesh) {
  return {std::make_shared<DeviceMesh>(mesh), &mesh.world()};
}

CommGroups make_groups(const FsdpOptions& options, const DeviceMesh& mesh) {
  if (options.strategy == Strategy::NoShard) {
    const std::shared_ptr<Communicator> world = world_of(mesh);
    return {.gather = world->make_lone(), .reduce = world};
  }
  std::shared_ptr<Communicator> shard = axis_communicator(mesh, kShardAxis);
  CommGroups groups{.gather = shard, .reduce = shard};
  if (mesh.size(kReplicateAxis) > 1) {
    groups.replicate = axis_communicator(mesh, kReplicateAxis);
  }
  if (options.reshard_to_ranks > 1 &&
      options.reshard_to_ranks < shard->world_size()) {
    groups.secondary = mesh.neighbours(kShardAxis, options.reshard_to_ranks);
  }
  return groups;
}

std::shared_ptr<SlotPools> make_pools(const CommGroups& groups) {
  const SlotPool::Kind parameters =
      groups.secondary ? SlotPool::Kind::Private : SlotPool::Kind::Common;
  return std::make_shared<SlotPools>(
      SlotPools{.parameters = {parameters, groups.gather},
                .gradients = {SlotPool::Kind::Exported, groups.reduce},
                .gradient_shards = {SlotPool::Kind::Shards, groups.reduce}});
}

/// Buffers of its own, or those of the module that it shares them with.
std::shared_ptr<SlotPools> choose_pools(const CommGroups& groups,
                                        const FsdpOptions& options) {
  if (options.share_slots_with == nullptr) {
    return make_pools(groups);
  }
  const Executor& other =
      *sharded_state(*options.share_slots_with, "fully_shard").executor;
  const CommGroups& theirs = other.units().front()->groups();
  const bool same =
      theirs.gather.get() == groups.gather.get() &&
      theirs.reduce.get() == groups.reduce.get() &&
      (theirs.secondary != nullptr) == (groups.secondary != nullptr);
  TORCH_CHECK_VALUE(same, "[fully_shard] share_slots_with names module '",
                    options.share_slots_with->name(),
                    "', which is sharded over another mesh or with a strategy "
                    "that gathers or reduces over other ranks. Pass the same "
                    "DeviceMesh and strategy to both.");
  return other.shared_pools();
}

UnitSettings make_settings(const UnitMembers& members,
                           const FsdpOptions& options) {
  return {.reshard_after_forward =
              reshards_after_forward(options, members.parent == -1),
          .stays_in_evaluation = !options.reshard_after_forward.value_or(true)};
}

/// By unit, Executor::UnitPlan::reads.
std::vector<std::vector<int>> units_read(
    const std::vector<UnitMembers>& units) {
  std::unordered_map<const c10::TensorImpl*, int> owners;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const MemberParameter& parameter : units[i].parameters) {
      owners[parameter.tensor.unsafeGetTensorImpl()] = static_cast<int>(i);
      for (const at::Tensor& alias : parameter.aliases) {
        owners[alias.unsafeGetTensorImpl()] = static_cast<int>(i);
      }
    }
  }
  std::vector<std::vector<int>> result;
  for (std::size_t i = 0; i < units.size(); ++i) {
    std::set<int> read = {static_cast<int>(i)};
    for (const at::Tensor& parameter : module_of(units[i]).parameters()) {
      const auto owner = owners.find(parameter.unsafeGetTensorImpl());
      // Units inside, which come later, see to themselves.
      if (owner != owners.end() && owner->second < static_cast<int>(i)) {
        read.insert(owner->second);
      }
    }
    result.emplace_back(read.begin(), read.end());
  }
  return result;
}

/// By unit, whether it keeps no activations.
std::vector<bool> checkpointed_units(const WrappedUnits& wrapped,
                                     const FsdpOptions& options) {
  std::vector<bool> result(wrapped.units.size(), false);
  if (!options.activation_checkpointing) {
    return result;
  }
  const WrapPolicy& policy = options.activation_checkpointing->units;
  const std::int64_t every = options.activation_checkpointing->every;
  std::int64_t chosen = 0;
  for (std::size_t i = 0; i < wrapped.units.size(); ++i) {
    const UnitMembers& unit = wrapped.units[i];
    if (unit.parent >= 0 && policy.chooses({.name = unit.name,
                                            .module = module_of(unit),
                                            .numel = numel_of(unit)})) {
      result[i] = ++chosen % every == 0;
    }
  }
  return result;
}

PassSettings make_pass_settings(const FsdpOptions& options) {
  return {.accumulation = accumulation_of(options),
          .keep_parameters = keeps_parameters(options),
          .divide_factor = options.gradient_divide_factor};
}

/// How each tensor on meta gets its values.
using InitPlan = std::unordered_map<const c10::TensorImpl*,
                                    std::shared_ptr<const ParameterInit>>;

InitPlan make_init_plan(torch::nn::Module& root, const InitOptions& options) {
  InitPlan plan;
  for (ParameterInit& init : plan_initialization(root, options)) {
    const c10::TensorImpl* key = init.parameter.unsafeGetTensorImpl();
    plan.emplace(key, std::make_shared<ParameterInit>(std::move(init)));
  }
  return plan;
}

void plan_values(std::vector<UnitMembers>& units, const InitPlan& plan) {
  for (UnitMembers& unit : units) {
    for (MemberParameter& parameter : unit.parameters) {
      const auto init = plan.find(parameter.tensor.unsafeGetTensorImpl());
      if (init != plan.end()) {
        parameter.init = init->second;
      }
    }
  }
}

/// What no unit holds: ignored parameters and buffers.
void finish_initialization(torch::nn::Module& root, const InitPlan& plan,
                           const FsdpOptions& options) {
  const at::NoGradGuard no_grad;
  for (const auto& [key, init] : plan) {
    if (init->parameter.is_meta()) {
      const at::Tensor data = at::empty(
          init->parameter.sizes(), init->parameter.options().device(at::kCPU));
      initialize_piece(*init, /*begin=*/0, data);
      assign_data(init->parameter, data);
    }
  }
  rebuild_buffers(root, options.init);
  if (options.precision.buffer_dtype) {
    cast_buffers(root, *options.precision.buffer_dtype);
  }
}

/// What no unit holds goes to where the units are.
void move_to_device(torch::nn::Module& root, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto move = [device](at::Tensor tensor) {
    if (tensor.defined() && tensor.device() != device) {
      tensor.set_data(tensor.to(device));
    }
  };
  for (const auto& [name, parameter] : ignored_parameters(root)) {
    move(parameter);
  }
  for (const at::Tensor& buffer : root.buffers()) {
    move(buffer);
  }
}

}  // namespace

void fully_shard(torch::nn::Module& root, const DeviceMesh& mesh,
                 const FsdpOptions& options) {
  check_mesh(mesh);
  check_options(options, mesh);
  check_offload(options);
  check_device_options(options, mesh);
  const InitPlan plan = make_init_plan(root, options.init);
  WrappedUnits wrapped =
      wrap_units(discover_units(root, placement_rule(options)), options.wrap);
  plan_values(wrapped.units, plan);
  check_devices(wrapped.units, mesh.world());
  if (mesh.world().has_memory()) {
    verify_ranks(wrapped.units, mesh.world(),
                 options.verify_parameters && !options.broadcast_parameters);
    if (options.broadcast_parameters) {
      broadcast_values(wrapped.units, mesh.world());
    }
  }

  CommGroups groups = make_groups(options, mesh);
  groups.module = mesh.take_number();
  std::vector<UnitBase*> bases;
  std::vector<Executor::UnitPlan> plans;
  const std::vector<bool> checkpointed = checkpointed_units(wrapped, options);
  std::vector<std::vector<int>> reads = units_read(wrapped.units);
  for (std::size_t i = 0; i < wrapped.units.size(); ++i) {
    UnitMembers& unit = wrapped.units[i];
    bases.push_back(unit.unit);
    UnitSettings settings = make_settings(unit, options);
    settings.checkpoints_activations = checkpointed[i];
    plans.push_back(
        {std::move(unit), groups, std::move(settings), std::move(reads[i])});
  }
  const auto executor = std::make_shared<Executor>(
      std::move(plans), options, choose_pools(groups, options), world_of(mesh));
  executor->pass_settings() = make_pass_settings(options);
  const auto state = std::make_shared<FsdpState>(
      FsdpState{mesh, options, executor, std::move(wrapped.decisions)});
  executor->attach();
  if (mesh.world().has_memory()) {
    finish_initialization(root, plan, options);
  }
  for (std::size_t i = 0; i < bases.size(); ++i) {
    bases[i]->attach(std::make_shared<FsdpHooks>(state, static_cast<int>(i)));
  }
  if (const c10::Device device = device_of(mesh.world()); device.is_cuda()) {
    move_to_device(root, device);
  }
}

}  // namespace accordion
