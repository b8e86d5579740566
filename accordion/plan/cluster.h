// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "accordion/plan/gpu_type.h"
#include "accordion/plan/link_type.h"

namespace accordion::plan {

/// Equal hosts with equal devices. Values, not names: a calibrated cluster has
/// rates of its own.
struct Cluster {
  GpuType gpu;
  int num_hosts = 1;
  int gpus_per_host = 1;
  LinkType inside;   ///< between the devices of a host
  LinkType between;  ///< between hosts, the share of one device
  /// Of one device: between it and its host's memory, one way (PCIe 4 of 16
  /// lanes); of the host's memory for its processors; and of the host's disk,
  /// reading and writing at a time.
  double host_bytes_per_s = 25e9;
  double host_memory_bytes_per_s = 25e9;
  double disk_bytes_per_s = 3e9;

  [[nodiscard]] int num_gpus() const { return num_hosts * gpus_per_host; }
  /// Whether its devices are the processors of the hosts (gpu = "CPU").
  [[nodiscard]] bool is_cpu() const { return gpu.name == kCpuName; }
  static constexpr std::string_view kCpuName = "CPU";
  bool operator==(const Cluster&) const = default;
};

/// "8xH100", one host; "16x8xH100-IB", 16 hosts of 8 with a network of the
/// GPU's generation; "4x8xA100-40GB-Ethernet-100" with one of 100 Gb/s a GPU.
///
/// Throws std::invalid_argument that names the part that is wrong and the
///        nearest GPU or link known
Cluster parse_cluster(std::string_view text);

/// `num_gpus` devices of the type in hosts of 8 (fewer if there are fewer),
/// with the links that its generation comes with.
///
/// Throws std::invalid_argument below 1
Cluster usual_cluster(const GpuType& gpu, int num_gpus);

/// A TOML file with gpu, hosts, gpus_per_host, inside, between, and the fields
/// of GpuType and LinkType that differ from those named (tables [gpu_rates],
/// [inside_rates], [between_rates]), and what was measured ([[measured]]: kind,
/// compute, sizes, per_s; see MeasuredRate). gpu = "CPU" is a rank of a host
/// without GPUs, whose rates are all in the file; `accordion bench calibrate`
/// writes such a one.
///
/// Throws std::invalid_argument that names the key, and the nearest one known
///        std::runtime_error if the file cannot be read
Cluster cluster_from_toml(std::string_view text, std::string_view source);
Cluster cluster_from_file(const std::string& path);
/// The file of a cluster, which cluster_from_toml reads back.
std::string to_toml(const Cluster& cluster);

}  // namespace accordion::plan
