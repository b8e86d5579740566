// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "accordion/comm/communicator.h"

namespace accordion {

/// Where tensors lie that a communicator moves.
[[nodiscard]] inline c10::Device device_of(const Communicator& communicator) {
  if (const std::optional<int> number = communicator.cuda_device()) {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(*number)};
  }
  return communicator.has_memory() ? c10::kCPU : c10::kMeta;
}

/// The communicators of a sharded module. A strategy is a choice of these:
///
///              gather      reduce      replicate
///   sharded    all ranks   all ranks   none
///   no_shard   one rank    all ranks   none
///   hybrid     shard axis  shard axis  replicate axis
///
/// Over a group of one a gather is a cast or nothing, and a reduction over
/// ranks that each hold everything is an all-reduce.
struct CommGroups {
  std::shared_ptr<Communicator> gather;  ///< ranks that hold pieces of one copy
  std::shared_ptr<Communicator> reduce;  ///< ranks whose gradients are summed
  /// Ranks that hold the same pieces, over which the sums are averaged; null
  /// where there are none.
  std::shared_ptr<Communicator> replicate = nullptr;
  /// Neighbours within `gather` that hold one copy between forward and
  /// backward; null where units are resharded to all ranks.
  std::shared_ptr<Communicator> secondary = nullptr;
  /// Which of the modules over these ranks communicates: 0 is the first.
  int module = 0;

  /// What a collective is called. Modules of one class have units of the same
  /// names, and a rank that runs another one must be told.
  [[nodiscard]] std::string label(const std::string& unit) const {
    const std::string name = unit.empty() ? "(root)" : unit;
    return module == 0 ? name
                       : name + " of module " + std::to_string(module + 1);
  }

  /// A parameter slot as the gathers see it: gathers over two groups share
  /// memory with neither, and pass none.
  [[nodiscard]] CommBuffer* slot_of(CommBuffer& slot) const {
    return secondary ? nullptr : &slot;
  }
  /// Where what is sharded lies.
  [[nodiscard]] c10::Device device() const { return device_of(*reduce); }
  [[nodiscard]] bool sharded() const { return gather->world_size() > 1; }
  [[nodiscard]] int num_replicas() const {
    return replicate ? replicate->world_size() : 1;
  }
  /// Ranks whose gradients make up the mean.
  [[nodiscard]] int num_ranks() const {
    return reduce->world_size() * num_replicas();
  }
};

}  // namespace accordion
