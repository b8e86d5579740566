// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fully_shard.h"

#include <c10/util/Exception.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/verify_ranks.h"

namespace accordion {

namespace {

constexpr const char* kShardAxis = "shard";

void check_options(const FsdpOptions& options, const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(options.prefetch >= 0, "[fully_shard] prefetch is ",
                    options.prefetch,
                    "; it counts units gathered ahead, 0 or more");
  TORCH_CHECK_VALUE(mesh.axes().size() == 1 && mesh.has_axis(kShardAxis),
                    "[fully_shard] the mesh needs one axis named '", kShardAxis,
                    "' over all ranks");
  for (const auto& dtype :
       {options.precision.param_dtype, options.precision.reduce_dtype,
        options.precision.output_dtype}) {
    TORCH_CHECK_VALUE(!dtype || c10::isFloatingType(*dtype),
                      "[fully_shard] precision is ", c10::toString(*dtype),
                      "; choose a floating-point dtype");
  }
}

std::shared_ptr<Communicator> axis_communicator(const DeviceMesh& mesh) {
  // Shares the mesh's ownership.
  return {std::make_shared<DeviceMesh>(mesh), &mesh.communicator(kShardAxis)};
}

CommGroups make_groups(Strategy strategy, const DeviceMesh& mesh) {
  std::shared_ptr<Communicator> all = axis_communicator(mesh);
  if (strategy == Strategy::FullShard) {
    return {.gather = all, .reduce = all};
  }
  return {.gather = make_lone_communicator("none", all->timeout()),
          .reduce = all};
}

/// The root is needed again as soon as backward begins, and without sharding
/// freeing a unit would only repeat its cast.
bool is_kept(const UnitMembers& members, const FsdpOptions& options) {
  const bool reshard = options.reshard_after_forward.value_or(
      options.strategy == Strategy::FullShard && members.parent != -1);
  return !reshard;
}

}  // namespace

void fully_shard(torch::nn::Module& root, const DeviceMesh& mesh,
                 const FsdpOptions& options) {
  check_options(options, mesh);
  std::vector<UnitMembers> members = discover_units(root);
  verify_ranks(members, mesh.world(), options.verify_parameters);

  const CommGroups groups = make_groups(options.strategy, mesh);
  std::vector<UnitBase*> bases;
  std::vector<Executor::UnitPlan> plans;
  for (UnitMembers& unit : members) {
    bases.push_back(unit.unit);
    const bool kept = is_kept(unit, options);
    plans.push_back({std::move(unit), groups, kept});
  }
  const auto state = std::make_shared<FsdpState>(
      FsdpState{mesh, std::make_shared<Executor>(std::move(plans), options)});
  state->executor->attach();
  for (std::size_t i = 0; i < bases.size(); ++i) {
    bases[i]->attach(std::make_shared<FsdpHooks>(state, static_cast<int>(i)));
  }
}

}  // namespace accordion
