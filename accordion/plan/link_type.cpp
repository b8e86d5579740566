// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/link_type.h"

#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "accordion/plan/fitted_constants.h"
#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

// Seconds of a hop of a ring: NCCL's own model of it, with the protocol that
// long messages take (src/graph/tuning.cc, hwLat).
constexpr double kNvlinkLatency = 3.4e-6;
constexpr double kPcieLatency = 5.7e-6;
constexpr double kNetworkLatency = 14e-6;

LinkType inside(std::string name, double bytes_per_s, double latency_s) {
  return {std::move(name), bytes_per_s, fitted_constants().nvlink_efficiency,
          latency_s};
}

LinkType between(std::string name, double gbit_per_s) {
  return {std::move(name), gbit_per_s / 8 * 1e9,
          fitted_constants().network_efficiency, kNetworkLatency};
}

std::vector<LinkType> make_types() {
  return {
      // Datasheets of the GPUs, half of what they state for both ways.
      inside("NVLink2", 150e9, kNvlinkLatency),  // V100
      inside("NVLink3", 300e9, kNvlinkLatency),  // A100
      inside("NVLink4", 450e9, kNvlinkLatency),  // H100, H200
      inside("NVLink5", 900e9, kNvlinkLatency),  // B200, GB200, GB300
      // PCI-SIG: 16 lanes of 16, 32 and 64 GT/s, 128b/130b coded.
      inside("PCIe4", 31.5e9, kPcieLatency),
      inside("PCIe5", 63e9, kPcieLatency),
      // InfiniBand EDR, HDR, NDR and XDR: Gb/s of a port, one port a GPU.
      between("IB-100", 100),
      between("IB-200", 200),
      between("IB-400", 400),
      between("IB-800", 800),
      // Gb/s of a port, one port a GPU.
      between("Ethernet-10", 10),
      between("Ethernet-25", 25),
      between("Ethernet-100", 100),
      between("Ethernet-200", 200),
      between("Ethernet-400", 400),
  };
}

}  // namespace

std::span<const LinkType> link_types() {
  static const std::vector<LinkType> kTypes = make_types();
  return kTypes;
}

const LinkType& find_link(std::string_view name) {
  return find_named(link_types(), name, "[find_link] Link");
}

LinkType network_link(double gbit_per_s_per_device) {
  if (!(gbit_per_s_per_device > 0.0)) {
    throw std::invalid_argument(
        fmt::format("[network_link] Gb/s per device is {}, but must be above "
                    "0.",
                    gbit_per_s_per_device));
  }
  return between(fmt::format("network of {:g} Gb/s", gbit_per_s_per_device),
                 gbit_per_s_per_device);
}

}  // namespace accordion::plan
