// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/module/unit_hooks.h"

namespace accordion {

/// A parameter as the module tree registers it.
struct MemberParameter {
  std::string name;  ///< the first FQN under which it is registered
  torch::Tensor tensor;
};

/// A unit and the parameters that it owns: those below its module and not below
/// a unit inside it.
struct UnitMembers {
  std::string name;  ///< FQN of the module; "" for the root
  UnitBase* unit = nullptr;
  int parent = -1;  ///< index of the unit around it; -1 for the outermost
  std::vector<MemberParameter> parameters;
};

/// The units of a module tree in the order in which they are registered, outer
/// before inner. A parameter registered in several places (tied) is listed
/// once, in the lowest unit that contains all of them.
///
/// Throws c10::ValueError: parameters outside of every unit; units that are
///        sharded already; parameters that alias each other's storage;
///        complex, sparse or non-CPU parameters; a module without units
std::vector<UnitMembers> discover_units(torch::nn::Module& root);

}  // namespace accordion
