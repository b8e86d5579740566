// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/fsdp/options.h"
#include "accordion/module/unit_hooks.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {

/// A parameter as the module tree registers it.
struct MemberParameter {
  std::string name = {};  ///< the first FQN under which it is registered
  torch::Tensor tensor = {};
  /// Other tensors of the module on the same memory.
  std::vector<torch::Tensor> aliases = {};
  Placement placement = Placement::Shard;
  bool keeps_dtype = false;  ///< not cast to param_dtype (keeps_stored_dtype)
  /// How a tensor on meta gets its values; null for one that has them.
  std::shared_ptr<const ParameterInit> init = nullptr;
};

/// A unit and the parameters that it owns: those below its module and not below
/// a unit inside it.
struct UnitMembers {
  std::string name = {};  ///< FQN of the module; "" for the root
  UnitBase* unit = nullptr;
  int parent = -1;  ///< index of the unit around it; -1 for the outermost
  std::vector<MemberParameter> parameters = {};
};

/// A unit is its module: UnitModule derives from both.
const torch::nn::Module& module_of(const UnitMembers& unit);
/// Elements of the parameters that it owns.
std::int64_t numel_of(const UnitMembers& unit);

using PlacementRule =
    std::function<ParameterPlacement(const ParameterInfo& parameter)>;
/// What the options say about each parameter.
PlacementRule placement_rule(const FsdpOptions& options);

/// The units of a module tree in the order in which they are registered, outer
/// before inner. A parameter registered in several places (tied) is listed
/// once, in the lowest unit that contains all of them. Tied is the same tensor,
/// or tensors of one shape and dtype on the same memory. `place` decides about
/// each one; those it ignores are in no unit.
///
/// Throws c10::ValueError: parameters outside of every unit; units that are
///        sharded already; parameters that overlap otherwise;
///        complex, sparse or non-CPU parameters; a module without units
std::vector<UnitMembers> discover_units(torch::nn::Module& root,
                                        const PlacementRule& place);

/// How a unit's parameters lie over `num_ranks` ranks, in these dtypes.
UnitLayout layout_of(const UnitMembers& unit, const MixedPrecision& precision,
                     int num_ranks);

/// Whether a unit of this layout is gathered in place ([Note: gathers in
/// place]), among ranks that share memory.
bool gathers_in_place(const UnitLayout& layout, const FsdpOptions& options);

}  // namespace accordion
