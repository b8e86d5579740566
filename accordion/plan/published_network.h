// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/cluster.h"

namespace accordion::plan {

/// Gb/s of one GPU in a description of a network: "1600 Gb/s node-to-node" of 8
/// is 200, "400 Gb/s RDMA per GPU" is 400; none where it states no rate.
[[nodiscard]] std::optional<double> published_gbit_per_gpu(
    std::string_view network, int gpus_per_host);

/// The cluster of a row of published runs: its gpu, n_gpus and network.
///
/// Throws std::invalid_argument for a GPU that is not known
Cluster published_cluster(const nlohmann::json& row);

}  // namespace accordion::plan
