// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accordion::plan {

struct PlanRequest;
struct Strategy;
struct Training;

/// What a rank's device memory is held for, in bytes.
///
/// Real numbers: a plan is an estimate, and 1e14 parameters must not overflow.
struct DeviceMemory {
  double sharded_parameters = 0.0;    ///< stored ones, and their master copy
  double unsharded_parameters = 0.0;  ///< gathered units and whole copies
  double gradients = 0.0;             ///< that wait for the optimizer
  double unreduced_gradients = 0.0;   ///< whole ones on their way to the ranks
  double optimizer = 0.0;
  double communication_buffers = 0.0;
  double activations = 0.0;  ///< saved for backward, layer by layer
  double working = 0.0;      ///< what the operators of one layer hold at a time
  double logits = 0.0;       ///< and what the loss makes of them

  [[nodiscard]] double total() const;
};

/// A field of DeviceMemory, and how tables call it.
struct DeviceMemoryKind {
  std::string_view name;
  double DeviceMemory::*bytes;
};
inline constexpr std::array<DeviceMemoryKind, 9> kDeviceMemoryKinds = {{
    {"sharded_parameters", &DeviceMemory::sharded_parameters},
    {"unsharded_parameters", &DeviceMemory::unsharded_parameters},
    {"gradients", &DeviceMemory::gradients},
    {"unreduced_gradients", &DeviceMemory::unreduced_gradients},
    {"optimizer", &DeviceMemory::optimizer},
    {"communication_buffers", &DeviceMemory::communication_buffers},
    {"activations", &DeviceMemory::activations},
    {"working", &DeviceMemory::working},
    {"logits", &DeviceMemory::logits},
}};

/// What is held at one moment of a step.
struct MemoryPoint {
  std::string when;  ///< "forward of layers.3", "loss", "optimizer", …
  DeviceMemory held;
};

/// A rank's memory over the last microbatch of a step.
struct MemoryPlan {
  std::vector<MemoryPoint> timeline;  ///< in the order of a step
  std::size_t peak = 0;               ///< the point whose total is highest
  double host_bytes = 0.0;            ///< offloaded to the host, this rank's
  double disk_bytes = 0.0;            ///< offloaded to a disk
  /// Of the peak, with what the allocator holds besides.
  double reserved_bytes = 0.0;

  [[nodiscard]] const DeviceMemory& highest() const {
    return timeline[peak].held;
  }
};

/// Parameters, gradients and optimizer between two steps, of one rank that
/// would hold `params` parameters if nothing were sharded. Offloaded ones are
/// not on the device.
DeviceMemory state_memory(double params, const Strategy& strategy,
                          const Training& training);
/// The same of a model cut by tensor and pipeline ranks.
DeviceMemory state_memory(const PlanRequest& request);

/// The whole step, unit by unit of the schedule that runs.
MemoryPlan plan_memory(const PlanRequest& request);

}  // namespace accordion::plan
