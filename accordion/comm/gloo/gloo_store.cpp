// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/gloo_store.h"

#include <fmt/format.h>

#include "accordion/comm/communicator.h"
#include "accordion/comm/gloo/gloo_store_state.h"
#include "accordion/comm/gloo/network_interface.h"

// After gloo_declarations.h, which it needs.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace accordion {
namespace {

using Group = c10d::ProcessGroupGloo;

c10::intrusive_ptr<c10d::Store> connect_store(
    const Rendezvous& rendezvous, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = rendezvous.rank == 0 && !rendezvous.launcher_serves_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.multiTenant = true;
  try {
    const auto all = c10::make_intrusive<c10d::PrefixStore>(
        "accordion/" + rendezvous.run_id,
        c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options));
    const std::int64_t number =
        all->add(fmt::format("meshes of rank {}", rendezvous.rank), 1);
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("mesh {}", number), all);
  } catch (const std::exception& error) {
    throw CommError(fmt::format(
        "[gloo] rank {} of {} cannot meet the others at {}:{} (timeout {} ms). "
        "Is rank 0 running there, and the port free and open? {}",
        rendezvous.rank, rendezvous.world_size, rendezvous.address,
        rendezvous.port, timeout.count(), first_line(error)));
  }
}

void choose_device(GlooStore::State& state, const Rendezvous& rendezvous) {
  const std::string& interface = rendezvous.network_interface;
  if (!interface.empty()) {
    detail::check_interface(interface, detail::interface_addresses());
    state.place = interface;
    state.device = [interface] {
      return Group::createDeviceForInterface(interface);
    };
    return;
  }
  const bool one_host = rendezvous.world_size == rendezvous.local_world_size;
  const std::string address =
      one_host
          ? "127.0.0.1"
          : detail::address_for_peers(
                detail::address_towards(rendezvous.address, rendezvous.port),
                detail::interface_addresses());
  state.place = address;
  state.device = [address] { return Group::createDeviceForHostname(address); };
}

// The ranks, but for `own`, whose key nobody has set; all of them where the
// store does not answer.
std::vector<int> missing_of(c10d::Store& store,
                            const std::vector<std::string>& keys, int own) {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    try {
      if (static_cast<int>(rank) == own || store.check({keys[rank]})) {
        continue;
      }
    } catch (const std::exception&) {
      // Counts as missing.
    }
    missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

}  // namespace

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

GlooStore::GlooStore(const Rendezvous& rendezvous,
                     std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>()) {
  choose_device(*state_, rendezvous);
  state_->store = connect_store(rendezvous, timeout);
  state_->timeout = timeout;
}

std::vector<std::string> GlooStore::exchange(std::string_view key,
                                             std::string_view value, int rank,
                                             const detail::RankNames& names,
                                             int world_size) const {
  c10d::Store& store = *state_->store;
  std::vector<std::string> keys;
  for (int peer = 0; peer < world_size; ++peer) {
    keys.push_back(fmt::format("{}/{}", key, peer));
  }
  std::vector<std::string> values;
  try {
    // An empty value would be none.
    store.set(keys[static_cast<std::size_t>(rank)], fmt::format("={}", value));
    store.wait(keys, state_->timeout);
    for (const std::vector<std::uint8_t>& bytes : store.multiGet(keys)) {
      values.emplace_back(bytes.begin() + 1, bytes.end());
    }
    return values;
  } catch (const c10::DistNetworkError& error) {
    throw CommError(fmt::format(
        "[gloo] {} lost the store that rank 0 or its launcher serves while "
        "waiting for all ranks to start ({}); the output of rank 0 says why. "
        "{}",
        names.one_of(rank, world_size), key, first_line(error)));
  } catch (const std::exception& error) {
    throw CommError(fmt::format(
        "[gloo] {} waited {} ms for {} to start ({}). Are they running, with "
        "the same MASTER_ADDR, MASTER_PORT and run id? {}",
        names.one_of(rank, world_size), state_->timeout.count(),
        names.list(missing_of(store, keys, rank)), key, first_line(error)));
  }
}

}  // namespace accordion
