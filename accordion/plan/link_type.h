// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace accordion::plan {

/// What joins devices: the alpha-beta model of one link.
///
/// Units  bytes/s one way for each device, seconds
struct LinkType {
  std::string name;  ///< "NVLink4", "IB-400", … as a cluster file takes it
  double bytes_per_s = 0.0;  ///< datasheet: beta is 1 / (this * efficiency)
  /// Of the link's rate that a large collective gets.
  double efficiency = 0.0;
  /// Time of one hop of a collective, whatever its size (alpha).
  double latency_s = 0.0;
  /// Of a reduction, where that is another rate than a gather's (measured, so
  /// that `efficiency` is 1); 0: the same.
  double reduce_bytes_per_s = 0.0;

  bool operator==(const LinkType&) const = default;
};

/// All that are known, each rate that of one device's share.
[[nodiscard]] std::span<const LinkType> link_types();

/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] const LinkType& find_link(std::string_view name);

/// Between hosts, from what a description states: "400 Gb/s per GPU" gives
/// each device 50 GB/s.
[[nodiscard]] LinkType network_link(double gbit_per_s_per_device);

}  // namespace accordion::plan
