// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/published_network.h"

#include <regex>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace accordion::plan {

std::optional<double> published_gbit_per_gpu(std::string_view network,
                                             int gpus_per_host) {
  static const std::regex kRate(R"(([0-9.]+) ([GT])b/s)");
  const std::string text(network);
  std::smatch match;
  if (!std::regex_search(text, match, kRate)) {
    return std::nullopt;
  }
  const double rate = std::stod(match[1]) * (match[2] == "T" ? 1000.0 : 1.0);
  const bool each = text.find("per GPU") != std::string::npos ||
                    text.find("x8") != std::string::npos;
  return each ? rate : rate / gpus_per_host;
}

Cluster published_cluster(const nlohmann::json& row) {
  const auto gpu = row.find("gpu");
  const auto count = row.find("n_gpus");
  if (gpu == row.end() || !gpu->is_string()) {
    throw std::invalid_argument("the row names no GPU");
  }
  if (count == row.end() || !count->is_number_integer()) {
    throw std::invalid_argument("the row has no one number of GPUs");
  }
  Cluster cluster =
      usual_cluster(find_gpu(gpu->get<std::string>()), count->get<int>());
  std::string network;
  if (row.contains("network") && row["network"].is_string()) {
    network = row["network"].get<std::string>();
  } else if (row.contains("source") &&
             row["source"].dump().find("fms-fsdp") != std::string::npos) {
    // The machine of its figures, as its authors describe it elsewhere
    // (pytorch.org, Maximizing Training Throughput, 2024).
    network = "400 Gb/s per node";
  }
  if (const auto rate =
          published_gbit_per_gpu(network, cluster.gpus_per_host)) {
    cluster.between = network_link(*rate);
  }
  return cluster;
}

}  // namespace accordion::plan
