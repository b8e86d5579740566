// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace accordion::detail {

/// An address of this host on an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool loopback;
};

/// IPv4 first; without link-local addresses.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// The address from which this host reaches `host`, or "" where there is no
/// way. Nothing is sent.
[[nodiscard]] std::string address_towards(const std::string& host, int port);

/// The address at which other hosts reach this one: that from which it reaches
/// the host of rank 0, or, where that is itself by a loopback address, that of
/// the only other interface among `addresses`.
///
/// Throws CommError that lists the interfaces when several could be meant, or
///        says that there is none
[[nodiscard]] std::string address_for_peers(
    const std::string& towards_rank_0,
    const std::vector<InterfaceAddress>& addresses);

/// Throws std::invalid_argument that lists the interfaces unless one of them
/// has that name.
void check_interface(const std::string& name,
                     const std::vector<InterfaceAddress>& addresses);

}  // namespace accordion::detail
