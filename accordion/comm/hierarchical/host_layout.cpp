// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/host_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>

namespace accordion::detail {
namespace {

std::vector<int> hosts_of(const RankGroup& group,
                          std::span<const int> host_of_rank) {
  std::vector<int> hosts;
  for (const int member : group.members) {
    hosts.push_back(host_of_rank[static_cast<std::size_t>(member)]);
  }
  return hosts;
}

// Lengths of the runs of equal numbers.
std::vector<int> run_lengths(std::span<const int> hosts) {
  std::vector<int> lengths;
  for (std::size_t place = 0; place < hosts.size(); ++place) {
    if (place == 0 || hosts[place] != hosts[place - 1]) {
      lengths.push_back(0);
    }
    ++lengths.back();
  }
  return lengths;
}

}  // namespace

HostLayout layout_of(const RankGroup& group,
                     std::span<const int> host_of_rank) {
  const std::vector<int> hosts = hosts_of(group, host_of_rank);
  const std::size_t num_hosts = std::set(hosts.begin(), hosts.end()).size();
  if (num_hosts == 1) {
    return HostLayout::OneHost;
  }
  if (num_hosts == hosts.size()) {
    return HostLayout::HostEach;
  }
  const std::vector<int> lengths = run_lengths(hosts);
  const bool equal =
      std::all_of(lengths.begin(), lengths.end(),
                  [&](int length) { return length == lengths.front(); });
  return equal && lengths.size() == num_hosts ? HostLayout::Blocks
                                              : HostLayout::Uneven;
}

std::string describe_hosts(const RankGroup& group,
                           std::span<const int> host_of_rank) {
  std::string text;
  const std::vector<int> hosts = hosts_of(group, host_of_rank);
  for (const int host : std::set(hosts.begin(), hosts.end())) {
    std::vector<int> ranks;
    for (std::size_t place = 0; place < hosts.size(); ++place) {
      if (hosts[place] == host) {
        ranks.push_back(group.members[place]);
      }
    }
    text += fmt::format("{}host {}: {}", text.empty() ? "" : "; ", host,
                        fmt::join(ranks, ", "));
  }
  return text;
}

HostSplit split_by_host(const RankGroup& group,
                        std::span<const int> host_of_rank,
                        std::string_view purpose) {
  const std::vector<int> hosts = hosts_of(group, host_of_rank);
  const int per_host = run_lengths(hosts).front();
  const int host = group.rank / per_host;
  const int place = group.rank % per_host;
  HostSplit split;
  split.local.name = fmt::format("{}/{}/host {}", group.name, purpose, host);
  split.local.rank = place;
  split.between.name =
      fmt::format("{}/{}/place {}", group.name, purpose, place);
  split.between.rank = host;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int member = group.members[static_cast<std::size_t>(rank)];
    if (rank / per_host == host) {
      split.local.members.push_back(member);
    }
    if (rank % per_host == place) {
      split.between.members.push_back(member);
    }
  }
  return split;
}

std::vector<int> number_hosts(std::span<const std::string> identities) {
  std::vector<std::string> known;
  std::vector<int> numbers;
  for (const std::string& identity : identities) {
    const auto place = std::find(known.begin(), known.end(), identity);
    numbers.push_back(static_cast<int>(place - known.begin()));
    if (place == known.end()) {
      known.push_back(identity);
    }
  }
  return numbers;
}

std::string host_identity() {
  std::string kernel;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), kernel);
  if (kernel.empty()) {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    kernel = name.data();
  }
  std::error_code ignored;
  const auto network =
      std::filesystem::read_symlink("/proc/self/ns/net", ignored);
  return kernel + " " + network.string();
}

std::string host_of(const Rendezvous& rendezvous) {
  return rendezvous.host.empty() ? host_identity() : rendezvous.host;
}

}  // namespace accordion::detail
