// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/collective_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace accordion::plan {
namespace {

/// `ranks` of them, `stride` apart.
GroupShape strided(int ranks, int stride, const Cluster& cluster) {
  const int on_host = std::max(1, cluster.gpus_per_host / stride);
  return {ranks, std::min(ranks, on_host)};
}

double link_rate(const LinkType& link) {
  return link.bytes_per_s * link.efficiency;
}

/// Latencies of one turn through the ring.
double ring_latency(const GroupShape& group, const Cluster& cluster) {
  const int hosts = group.hosts();
  const int across = hosts > 1 ? hosts : 0;
  return (group.ranks - 1 - std::max(0, across - 1)) *
             cluster.inside.latency_s +
         std::max(0, across - 1) * cluster.between.latency_s;
}

/// As a calibration found it on as many ranks of one host.
std::optional<double> measured_time(MeasuredKind kind, double bytes,
                                    ComputeType wire, const GroupShape& group,
                                    const Cluster& cluster) {
  if (group.ranks != cluster.gpus_per_host || group.hosts() > 1 ||
      group.ranks <= 1 || bytes <= 0.0) {
    return std::nullopt;
  }
  const auto per_s =
      rate_at(cluster.gpu.measured, kind, wire, {bytes, 1.0, 1.0});
  return per_s ? std::optional(bytes / *per_s) : std::nullopt;
}

double ring_reduce_time(double bytes, const GroupShape& group,
                        const Cluster& cluster) {
  Cluster reducing = cluster;
  for (LinkType* link : {&reducing.inside, &reducing.between}) {
    if (link->reduce_bytes_per_s > 0.0) {
      link->bytes_per_s = link->reduce_bytes_per_s;
    }
  }
  return ring_time(bytes, group, reducing);
}

}  // namespace

GroupShape tensor_group(const Strategy& s, const Cluster& c) {
  return strided(s.tensor, 1, c);
}

GroupShape context_group(const Strategy& s, const Cluster& c) {
  return strided(s.context, s.tensor, c);
}

GroupShape shard_group(const Strategy& s, const Cluster& c) {
  return strided(s.shard_ranks(), s.tensor, c);
}

GroupShape replicate_group(const Strategy& s, const Cluster& c) {
  return strided(s.dp_replicate, s.tensor * s.shard_ranks(), c);
}

GroupShape secondary_group(const Strategy& s, const Cluster& c) {
  return strided(s.secondary_shard, s.tensor, c);
}

double ring_rate(const GroupShape& group, const Cluster& cluster) {
  const double inside = link_rate(cluster.inside);
  if (group.hosts() == 1) {
    return inside;
  }
  const double host = group.ranks_per_host * link_rate(cluster.between);
  return group.ranks_per_host == 1 ? host : std::min(inside, host);
}

double ring_time(double bytes, const GroupShape& group,
                 const Cluster& cluster) {
  if (group.ranks <= 1 || bytes <= 0.0) {
    return 0.0;
  }
  return bytes * (group.ranks - 1) / group.ranks / ring_rate(group, cluster) +
         ring_latency(group, cluster);
}

double gather_time(double bytes, ComputeType wire, const GroupShape& group,
                   const Cluster& cluster) {
  const auto measured =
      measured_time(MeasuredKind::Gather, bytes, wire, group, cluster);
  return measured ? *measured : ring_time(bytes, group, cluster);
}

double reduce_time(double bytes, ComputeType wire, const GroupShape& group,
                   const Cluster& cluster) {
  const auto measured =
      measured_time(MeasuredKind::Reduce, bytes, wire, group, cluster);
  return measured ? *measured : ring_reduce_time(bytes, group, cluster);
}

double all_reduce_time(double bytes, ComputeType wire, const GroupShape& group,
                       const Cluster& cluster) {
  if (group.ranks <= 1 || bytes <= 0.0) {
    return 0.0;
  }
  if (const auto measured =
          measured_time(MeasuredKind::AllReduce, bytes, wire, group, cluster)) {
    return *measured;
  }
  const double ring = ring_reduce_time(bytes, group, cluster) +
                      ring_time(bytes, group, cluster);
  const double levels = std::ceil(std::log2(std::max(2, group.hosts())));
  const double tree =
      2.0 * bytes / ring_rate(group, cluster) +
      2.0 * (levels * cluster.between.latency_s +
             (group.ranks_per_host - 1) * cluster.inside.latency_s);
  return std::min(ring, tree);
}

double send_time(double bytes, int distance, const Cluster& cluster) {
  const LinkType& link =
      distance < cluster.gpus_per_host ? cluster.inside : cluster.between;
  return bytes / link_rate(link) + link.latency_s;
}

}  // namespace accordion::plan
