// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "accordion/plan/cluster.h"
#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

[[noreturn]] void fail(std::string_view source, const std::string& what) {
  throw std::invalid_argument(
      fmt::format("[cluster_from_toml] {}: {}", source, what));
}

template <typename T>
struct Rate {
  std::string_view key;
  double T::*field;
};

constexpr std::array<Rate<GpuType>, 11> kGpuRates = {{
    {"peak_16bit_flops", &GpuType::peak_16bit_flops},
    {"peak_8bit_flops", &GpuType::peak_8bit_flops},
    {"peak_32bit_flops", &GpuType::peak_32bit_flops},
    {"memory_bytes", &GpuType::memory_bytes},
    {"memory_bytes_per_s", &GpuType::memory_bytes_per_s},
    {"power_w", &GpuType::power_w},
    {"gemm_efficiency", &GpuType::gemm_efficiency},
    {"gemm_8bit_efficiency", &GpuType::gemm_8bit_efficiency},
    {"memory_efficiency", &GpuType::memory_efficiency},
    {"gemm_fill_s", &GpuType::gemm_fill_s},
    {"attention_efficiency", &GpuType::attention_efficiency},
}};

constexpr std::array<Rate<LinkType>, 3> kLinkRates = {{
    {"bytes_per_s", &LinkType::bytes_per_s},
    {"efficiency", &LinkType::efficiency},
    {"latency_s", &LinkType::latency_s},
}};

template <typename T, std::size_t N>
void read_rates(const toml::node& node, std::string_view table_name,
                const std::array<Rate<T>, N>& rates, std::string_view source,
                T& target) {
  const toml::table* const table = node.as_table();
  if (table == nullptr) {
    fail(source, fmt::format("'{}' must be a table.", table_name));
  }
  std::vector<std::string_view> names;
  for (const auto& rate : rates) {
    names.push_back(rate.key);
  }
  for (const auto& [key, value] : *table) {
    const std::string_view name = key.str();
    const auto found =
        std::find_if(rates.begin(), rates.end(),
                     [&](const auto& rate) { return rate.key == name; });
    if (found == rates.end()) {
      fail(source,
           fmt::format("'{}.{}' is not known; the nearest is '{}'.", table_name,
                       key.str(), nearest_name(key.str(), names)));
    }
    const auto number = value.template value<double>();
    if (!number || !(*number > 0.0)) {
      fail(source, fmt::format("'{}.{}' must be a number above 0.", table_name,
                               key.str()));
    }
    target.*(found->field) = *number;
  }
}

std::string text_of(const toml::node& node, std::string_view key,
                    std::string_view source) {
  const auto text = node.value<std::string>();
  if (!text) {
    fail(source, fmt::format("'{}' must be a text.", key));
  }
  return *text;
}

int count_of(const toml::node& node, std::string_view key,
             std::string_view source) {
  const auto count = node.value<std::int64_t>();
  if (!count || *count < 1 || *count > 1'000'000) {
    fail(source,
         fmt::format("'{}' must be a whole number from 1 to 1000000.", key));
  }
  return static_cast<int>(*count);
}

constexpr std::array<std::string_view, 9> kKeys = {
    "gpu",       "hosts",        "gpus_per_host",
    "inside",    "between",      "host_bytes_per_s",
    "gpu_rates", "inside_rates", "between_rates"};

void read_key(std::string_view key, const toml::node& value,
              std::string_view source, Cluster& cluster) {
  if (key == "hosts") {
    cluster.num_hosts = count_of(value, key, source);
  } else if (key == "gpus_per_host") {
    cluster.gpus_per_host = count_of(value, key, source);
  } else if (key == "inside") {
    cluster.inside = find_link(text_of(value, key, source));
  } else if (key == "between") {
    cluster.between = find_link(text_of(value, key, source));
  } else if (key == "host_bytes_per_s") {
    const auto rate = value.value<double>();
    if (!rate || !(*rate > 0.0)) {
      fail(source, "'host_bytes_per_s' must be a number above 0.");
    }
    cluster.host_bytes_per_s = *rate;
  } else if (key != "gpu" && !key.ends_with("_rates")) {
    fail(source, fmt::format("'{}' is not known; the nearest is '{}'.", key,
                             nearest_name(key, kKeys)));
  }
}

}  // namespace

Cluster cluster_from_toml(std::string_view text, std::string_view source) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(source, std::string(error.description()));
  }
  const toml::node* const gpu = table.get("gpu");
  if (gpu == nullptr) {
    fail(source, "The key 'gpu' is missing.");
  }
  Cluster cluster = usual_cluster(find_gpu(text_of(*gpu, "gpu", source)), 1);
  for (const auto& [key, value] : table) {
    read_key(key.str(), value, source, cluster);
  }
  for (const auto& [key, value] : table) {
    // Behind the others: they change what those named.
    if (key.str() == "gpu_rates") {
      read_rates(value, key.str(), kGpuRates, source, cluster.gpu);
    } else if (key.str() == "inside_rates") {
      read_rates(value, key.str(), kLinkRates, source, cluster.inside);
    } else if (key.str() == "between_rates") {
      read_rates(value, key.str(), kLinkRates, source, cluster.between);
    } else if (key.str().ends_with("_rates")) {
      fail(source, fmt::format("'{}' is not known; the nearest is '{}'.",
                               key.str(), nearest_name(key.str(), kKeys)));
    }
  }
  return cluster;
}

Cluster cluster_from_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(
        fmt::format("[cluster_from_file] '{}' cannot be read.", path));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return cluster_from_toml(text.str(), path);
}

}  // namespace accordion::plan
