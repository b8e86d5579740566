// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/network_interface.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/file_descriptor.h"

namespace accordion::detail {
namespace {

// The digits of an address, or "".
std::string digits(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  return getnameinfo(address, length, text.data(), text.size(), nullptr, 0,
                     NI_NUMERICHOST) == 0
             ? text.data()
             : "";
}

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

std::string list(const std::vector<InterfaceAddress>& addresses) {
  std::string text;
  for (const InterfaceAddress& one : addresses) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.interface,
                        one.address);
  }
  return text;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
          (one->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      const std::string address =
          digits(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in)
                                                  : sizeof(sockaddr_in6));
      if (!address.empty() && !address.starts_with("fe80")) {
        result.push_back(
            {one->ifa_name, address, (one->ifa_flags & IFF_LOOPBACK) != 0});
      }
    }
  }
  return result;
}

// A datagram socket that is connected has its own address, and sends nothing.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first) !=
      0) {
    return "";
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(first, freeaddrinfo);
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    const FileDescriptor socket_fd(
        socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (socket_fd.valid() &&
        connect(socket_fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket_fd.get(), address, &length) == 0) {
      return digits(address, length);
    }
  }
  return "";
}

std::string address_for_peers(const std::string& towards_rank_0,
                              const std::vector<InterfaceAddress>& addresses) {
  if (!is_loopback(towards_rank_0)) {
    return towards_rank_0;
  }
  std::vector<InterfaceAddress> others;
  for (const InterfaceAddress& one : addresses) {
    const bool known = std::any_of(others.begin(), others.end(),
                                   [&](const InterfaceAddress& other) {
                                     return other.interface == one.interface;
                                   });
    if (!one.loopback && !known) {
      others.push_back(one);
    }
  }
  if (others.empty()) {
    throw CommError(
        "[gloo] this host has no network interface up but loopback, so ranks "
        "on other hosts cannot reach it");
  }
  if (others.size() > 1) {
    throw CommError(fmt::format(
        "[gloo] MASTER_ADDR is a loopback address on this host, so it does not "
        "tell which of its interfaces leads to the other hosts: {}. Name one "
        "in GLOO_SOCKET_IFNAME or DeviceMeshOptions::interface.",
        list(others)));
  }
  return others[0].address;
}

void check_interface(const std::string& name,
                     const std::vector<InterfaceAddress>& addresses) {
  if (std::none_of(
          addresses.begin(), addresses.end(),
          [&](const InterfaceAddress& one) { return one.interface == name; })) {
    throw std::invalid_argument(fmt::format(
        "[gloo] no network interface '{}' is up on this host, which has {}. "
        "Change GLOO_SOCKET_IFNAME or DeviceMeshOptions::interface.",
        name, addresses.empty() ? "none" : list(addresses)));
  }
}

}  // namespace accordion::detail
