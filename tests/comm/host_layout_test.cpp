// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/host_layout.h"

#include <gtest/gtest.h>

#include "accordion/comm/gloo/network_interface.h"
#include "accordion/comm/rank_names.h"
#include "tests/comm/collective_checks.h"

namespace accordion::testing {
namespace {

using detail::HostLayout;
using detail::RankGroup;

RankGroup world(int rank, int size) {
  return detail::MeshGrid({}, rank, size).world();
}

TEST(HostLayout, HostsAreNumberedAsTheyAppear) {
  const std::vector<std::string> identities = {"b", "b", "a", "b", "c"};
  EXPECT_EQ(detail::number_hosts(identities),
            (std::vector<int>{0, 0, 1, 0, 2}));
}

TEST(HostLayout, IsToldByRunsOfRanks) {
  const auto layout = [](std::vector<int> hosts) {
    return detail::layout_of(world(0, static_cast<int>(hosts.size())), hosts);
  };
  EXPECT_EQ(layout({0, 0, 0}), HostLayout::OneHost);
  EXPECT_EQ(layout({0, 1, 2}), HostLayout::HostEach);
  EXPECT_EQ(layout({0, 0, 1, 1, 2, 2}), HostLayout::Blocks);
  EXPECT_EQ(layout({0, 0, 1}), HostLayout::Uneven);
  EXPECT_EQ(layout({0, 1, 0, 1}), HostLayout::Uneven);  // round robin
  EXPECT_EQ(layout({0, 0, 1, 1, 0, 0}), HostLayout::Uneven);
}

// Two hosts of four ranks, sharded in the host and replicated across.
TEST(HostLayout, AxesOfAHybridMeshKeepToTheirWay) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  const detail::MeshGrid grid({{"replicate", 2}, {"shard", 4}}, 5, 8);
  EXPECT_EQ(detail::layout_of(grid.along(0), hosts), HostLayout::HostEach);
  EXPECT_EQ(detail::layout_of(grid.along(1), hosts), HostLayout::OneHost);
  EXPECT_EQ(detail::layout_of(grid.world(), hosts), HostLayout::Blocks);
}

TEST(HostLayout, SplitsBlocksByHostAndPlace) {
  const std::vector<int> hosts = {7, 7, 7, 3, 3, 3};
  const auto split = detail::split_by_host(world(4, 6), hosts, "gather");
  EXPECT_EQ(split.local.members, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(split.local.rank, 1);
  EXPECT_EQ(split.between.members, (std::vector<int>{1, 4}));
  EXPECT_EQ(split.between.rank, 1);
  const auto peer = detail::split_by_host(world(1, 6), hosts, "gather");
  EXPECT_EQ(peer.between.name, split.between.name);
  EXPECT_NE(peer.local.name, split.local.name);
}

TEST(HostLayout, DescribesWhoIsWhere) {
  EXPECT_EQ(detail::describe_hosts(world(0, 3), std::vector<int>{0, 1, 0}),
            "host 0: 0, 2; host 1: 1");
}

TEST(HostLayout, IdentityIsTheSameForTheWholeProcess) {
  EXPECT_EQ(detail::host_identity(), detail::host_identity());
  EXPECT_NE(detail::host_identity().find("net:["), std::string::npos);
}

TEST(RankNames, SpeakOfMeshRanks) {
  const detail::RankNames all({0, 1, 2, 3});
  EXPECT_EQ(all.one_of(3, 4), "rank 3 of 4");
  EXPECT_EQ(all.list(std::vector{1}), "rank 1");
  const detail::RankNames odd({1, 3, 5});
  EXPECT_EQ(odd.one_of(1, 3), "rank 3 of ranks 1, 3 and 5");
  EXPECT_EQ(odd.list(std::vector{0, 2}), "ranks 1 and 5");
  std::vector<int> many(40);
  for (int rank = 0; rank < 40; ++rank) {
    many[static_cast<std::size_t>(rank)] = 2 * rank;
  }
  EXPECT_EQ(detail::RankNames(many).one_of(39, 40),
            "rank 78 of 40 ranks (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, …, "
            "78)");
}

TEST(NetworkInterface, IsTheOneThatLeadsToRankZero) {
  EXPECT_EQ(detail::address_towards("127.0.0.1", 29500), "127.0.0.1");
  EXPECT_EQ(detail::address_towards("no-such-host.invalid", 29500), "");
  EXPECT_EQ(detail::address_for_peers("10.0.0.7", {}), "10.0.0.7");
}

TEST(NetworkInterface, OnTheHostOfRankZeroIsTheOnlyOther) {
  const std::vector<detail::InterfaceAddress> one = {
      {"lo", "127.0.0.1", true},
      {"eth0", "10.0.0.7", false},
      {"eth0", "fd00::7", false}};
  EXPECT_EQ(detail::address_for_peers("127.0.1.1", one), "10.0.0.7");
  std::vector<detail::InterfaceAddress> two = one;
  two.push_back({"ib0", "10.1.0.7", false});
  EXPECT_NE(
      message_of([&] { (void)detail::address_for_peers("127.0.1.1", two); })
          .find("which of its interfaces leads to the other hosts: eth0 "
                "(10.0.0.7), ib0 (10.1.0.7). Name one in "
                "GLOO_SOCKET_IFNAME"),
      std::string::npos);
  EXPECT_NE(
      message_of([] {
        (void)detail::address_for_peers("::1", {{"lo", "127.0.0.1", true}});
      }).find("no network interface up but loopback"),
      std::string::npos);
}

TEST(NetworkInterface, MustExistWhenNamed) {
  const auto addresses = detail::interface_addresses();
  detail::check_interface("lo", addresses);
  EXPECT_NE(message_of([&] { detail::check_interface("eth77", addresses); })
                .find("no network interface 'eth77' is up on this host, which "
                      "has lo (127.0.0.1)"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
