// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/cluster.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

/// Takes "16x" from the front; nothing where there is no number and x.
std::optional<int> take_count(std::string_view& text) {
  int count = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), count);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc{} || digits == text.size() ||
      (text[digits] != 'x' && text[digits] != 'X')) {
    return std::nullopt;
  }
  text.remove_prefix(digits + 1);
  return count;
}

[[noreturn]] void fail(std::string_view text, const std::string& what) {
  throw std::invalid_argument(fmt::format(
      "[parse_cluster] '{}': {} Write 8xH100, or 16x8xH100-IB for 16 hosts.",
      text, what));
}

bool is_gpu(std::string_view name) {
  try {
    (void)find_gpu(name);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

/// The longest part before a '-' that names a GPU, else all: the error then
/// says what is near.
std::string_view gpu_part(std::string_view text) {
  std::string_view part = text;
  while (!is_gpu(part)) {
    const auto dash = part.rfind('-');
    if (dash == std::string_view::npos) {
      return part;
    }
    part = part.substr(0, dash);
  }
  return part;
}

/// "IB" and "Ethernet" alone are of the rate that the GPU's machines have.
LinkType network_named(std::string_view name, const LinkType& usual) {
  const std::string kind = normalized(name);
  if (kind == "ib" || kind == "roce") {
    return usual;
  }
  return find_link(kind == "ethernet" ? "Ethernet-100" : name);
}

}  // namespace

Cluster parse_cluster(std::string_view text) {
  std::string_view rest = text;
  const std::optional<int> first = take_count(rest);
  if (!first) {
    fail(text, "It begins with no number of GPUs and an x.");
  }
  const std::optional<int> second = take_count(rest);
  const std::string_view gpu_name = gpu_part(rest);
  const GpuType& gpu = find_gpu(gpu_name);
  Cluster cluster = {.gpu = gpu,
                     .num_hosts = second ? *first : 1,
                     .gpus_per_host = second.value_or(*first),
                     .inside = find_link(gpu.inside),
                     .between = find_link(gpu.between)};
  if (cluster.num_hosts < 1 || cluster.gpus_per_host < 1) {
    fail(text, fmt::format("{} hosts of {} GPUs, but there must be at least 1.",
                           cluster.num_hosts, cluster.gpus_per_host));
  }
  if (rest.size() > gpu_name.size()) {
    cluster.between =
        network_named(rest.substr(gpu_name.size() + 1), cluster.between);
  }
  return cluster;
}

Cluster usual_cluster(const GpuType& gpu, int num_gpus) {
  if (num_gpus < 1) {
    throw std::invalid_argument(fmt::format(
        "[usual_cluster] num_gpus is {}, but must be at least 1.", num_gpus));
  }
  int per_host = std::min(num_gpus, std::max(8, gpu.link_domain));
  while (num_gpus % per_host != 0) {
    --per_host;
  }
  return {.gpu = gpu,
          .num_hosts = num_gpus / per_host,
          .gpus_per_host = per_host,
          .inside = find_link(gpu.inside),
          .between = find_link(gpu.between)};
}

}  // namespace accordion::plan
