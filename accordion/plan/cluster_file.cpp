// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "accordion/plan/cluster.h"
#include "accordion/plan/nearest_name.h"
#include "accordion/plan/text_file.h"

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

constexpr std::array<Rate<LinkType>, 4> kLinkRates = {{
    {"bytes_per_s", &LinkType::bytes_per_s},
    {"efficiency", &LinkType::efficiency},
    {"latency_s", &LinkType::latency_s},
    {"reduce_bytes_per_s", &LinkType::reduce_bytes_per_s},
}};

/// Of a host, at the file's top.
constexpr std::array<Rate<Cluster>, 3> kHostRates = {{
    {"host_bytes_per_s", &Cluster::host_bytes_per_s},
    {"host_memory_bytes_per_s", &Cluster::host_memory_bytes_per_s},
    {"disk_bytes_per_s", &Cluster::disk_bytes_per_s},
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

constexpr std::array<std::string_view, 9> kOtherKeys = {
    "gpu",      "hosts",     "gpus_per_host", "inside",       "between",
    "measured", "gpu_rates", "inside_rates",  "between_rates"};

/// Of those that the file may have at its top.
std::string_view nearest_key(std::string_view key) {
  std::vector<std::string_view> keys(kOtherKeys.begin(), kOtherKeys.end());
  std::ranges::transform(kHostRates, std::back_inserter(keys),
                         &Rate<Cluster>::key);
  return nearest_name(key, keys);
}

/// A rank of a CPU host, of which the file says all: no datasheet would.
Cluster cpu_cluster() {
  Cluster cluster;
  cluster.gpu.name = Cluster::kCpuName;
  cluster.gpu.num_multiprocessors = 1;
  cluster.gpu.clock_hz = 1e9;
  cluster.gpu.power_w = cluster.gpu.reference_power_w = 1.0;
  cluster.gpu.gemm_efficiency = cluster.gpu.memory_efficiency = 1.0;
  cluster.gpu.attention_efficiency = 1.0;
  // A collective runs on the cores that compute: they stand still beside it.
  cluster.gpu.collective_share = 0.999;
  cluster.inside = {.name = "SHM", .efficiency = 1.0};
  cluster.between = {.name = "Gloo", .efficiency = 1.0};
  return cluster;
}

void check_cpu(const Cluster& cluster, std::string_view source) {
  for (const std::string_view key : {"peak_16bit_flops", "peak_32bit_flops",
                                     "memory_bytes", "memory_bytes_per_s"}) {
    const auto rate = std::ranges::find(kGpuRates, key, &Rate<GpuType>::key);
    if (!(cluster.gpu.*(rate->field) > 0.0)) {
      fail(source, fmt::format("'gpu_rates.{}' is missing, which a CPU needs; "
                               "`accordion bench calibrate` writes it.",
                               key));
    }
  }
  if (cluster.num_gpus() > 1 && !(cluster.inside.bytes_per_s > 0.0)) {
    fail(source, "'inside_rates.bytes_per_s' is missing, which a CPU needs.");
  }
  if (cluster.num_hosts > 1 && !(cluster.between.bytes_per_s > 0.0)) {
    fail(source, "'between_rates.bytes_per_s' is missing, which a CPU needs.");
  }
}

/// Reads an entry of [[measured]].
MeasuredRate measured_from(const toml::node& node, std::string_view source) {
  const toml::table* const table = node.as_table();
  if (table == nullptr || table->size() != 4) {
    fail(source, "'measured' must be tables of kind, compute, sizes, per_s.");
  }
  MeasuredRate rate;
  const auto text = [&](std::string_view key) {
    return (*table)[key].value<std::string>().value_or("");
  };
  try {
    rate.kind = parse_measured_kind(text("kind"));
    rate.compute = parse_compute_type(text("compute"));
  } catch (const std::invalid_argument& error) {
    fail(source, fmt::format("'measured': {}", error.what()));
  }
  rate.per_s = (*table)["per_s"].value<double>().value_or(0.0);
  const toml::array* const sizes = (*table)["sizes"].as_array();
  bool valid = sizes != nullptr && !sizes->empty() && sizes->size() <= 3 &&
               rate.per_s > 0.0;
  for (std::size_t i = 0; valid && i < sizes->size(); ++i) {
    rate.sizes[i] = sizes->get(i)->value<double>().value_or(0.0);
    valid = rate.sizes[i] > 0.0;
  }
  if (!valid) {
    fail(source,
         "'measured': sizes must be 1 to 3 numbers above 0, and per_s one.");
  }
  return rate;
}

void read_measured(const toml::node& node, std::string_view source,
                   Cluster& cluster) {
  const toml::array* const entries = node.as_array();
  if (entries == nullptr) {
    fail(source, "'measured' must be an array of tables, [[measured]].");
  }
  for (const toml::node& entry : *entries) {
    cluster.gpu.measured.push_back(measured_from(entry, source));
  }
}

void read_key(std::string_view key, const toml::node& value,
              std::string_view source, Cluster& cluster) {
  if (key == "hosts") {
    cluster.num_hosts = count_of(value, key, source);
  } else if (key == "gpus_per_host") {
    cluster.gpus_per_host = count_of(value, key, source);
  } else if (key == "inside" || key == "between") {
    LinkType& link = key == "inside" ? cluster.inside : cluster.between;
    const std::string name = text_of(value, key, source);
    if (name != link.name) {
      link = find_link(name);
    }
  } else if (key == "measured") {
    read_measured(value, source, cluster);
  } else if (const auto host =
                 std::ranges::find(kHostRates, key, &Rate<Cluster>::key);
             host != kHostRates.end()) {
    const auto rate = value.value<double>();
    if (!rate || !(*rate > 0.0)) {
      fail(source, fmt::format("'{}' must be a number above 0.", key));
    }
    cluster.*(host->field) = *rate;
  } else if (key != "gpu" && !key.ends_with("_rates")) {
    fail(source, fmt::format("'{}' is not known; the nearest is '{}'.", key,
                             nearest_key(key)));
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
  const std::string name = text_of(*gpu, "gpu", source);
  const bool is_cpu = name == Cluster::kCpuName;
  Cluster cluster = is_cpu ? cpu_cluster() : usual_cluster(find_gpu(name), 1);
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
                               key.str(), nearest_key(key.str())));
    }
  }
  if (is_cpu) {
    check_cpu(cluster, source);
  }
  return cluster;
}

std::string to_toml(const Cluster& cluster) {
  std::string text = fmt::format(
      "gpu = \"{}\"\nhosts = {}\ngpus_per_host = {}\ninside = \"{}\"\n"
      "between = \"{}\"\n",
      cluster.gpu.name, cluster.num_hosts, cluster.gpus_per_host,
      cluster.inside.name, cluster.between.name);
  for (const Rate<Cluster>& rate : kHostRates) {
    text += fmt::format("{} = {:.6e}\n", rate.key, cluster.*(rate.field));
  }
  const auto add = [&text](std::string_view name, const auto& rates,
                           const auto& of) {
    text += fmt::format("\n[{}]\n", name);
    for (const auto& rate : rates) {
      if (of.*(rate.field) > 0.0) {
        text += fmt::format("{} = {:.6e}\n", rate.key, of.*(rate.field));
      }
    }
  };
  add("gpu_rates", kGpuRates, cluster.gpu);
  add("inside_rates", kLinkRates, cluster.inside);
  add("between_rates", kLinkRates, cluster.between);
  for (const MeasuredRate& rate : cluster.gpu.measured) {
    text += fmt::format(
        "\n[[measured]]\nkind = \"{}\"\ncompute = \"{}\"\n"
        "sizes = [{:.9g}, {:.9g}, {:.9g}]\nper_s = {:.6e}\n",
        to_string(rate.kind), to_string(rate.compute), rate.sizes[0],
        rate.sizes[1], rate.sizes[2], rate.per_s);
  }
  return text;
}

Cluster cluster_from_file(const std::string& path) {
  return cluster_from_toml(read_text(path, "[cluster_from_file]"), path);
}

}  // namespace accordion::plan
