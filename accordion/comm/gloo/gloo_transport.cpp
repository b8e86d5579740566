// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/gloo_transport.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <set>

#include "accordion/comm/gloo/gloo_store_state.h"

namespace accordion::detail {
namespace {

// Time for what has arrived to be found so, once a peer is missing.
constexpr auto kLastLook = std::chrono::milliseconds(10);

// Messages of a kind are counted apart: one kind per operation, and this.
constexpr std::uint32_t kCompare = kNumCommOps;

// What ranks compare in debug mode; travels as bytes.
struct CallRecord {
  char text[128];
  std::int64_t bytes;
  std::int64_t num_parts;
};

at::Tensor bytes_at(const void* data, std::int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::kByte);
}

}  // namespace

void GlooTransport::fail(const GlooCall& call, std::span<const int> missing,
                         const std::exception& cause) const {
  throw CommError(fmt::format(
      "[gloo] {} '{}' (call {} of its kind) failed on {} while waiting for {} "
      "(timeout {} ms): {}",
      name(call.op), call.label, call.number,
      names_.one_of(options_.rank, options_.world_size), names_.list(missing),
      options_.timeout.count(), first_line(cause)));
}

void GlooTransport::exchange(const GlooCall& call, const Pieces& outgoing,
                             const Pieces& incoming,
                             std::vector<Transfer>& transfers) {
  exchange(call, static_cast<std::uint32_t>(call.op), outgoing, incoming,
           transfers);
}

void GlooTransport::exchange(const GlooCall& call, std::uint32_t kind,
                             const Pieces& outgoing, const Pieces& incoming,
                             std::vector<Transfer>& transfers) {
  const std::uint32_t number = messages_[kind]++;
  const int tag = static_cast<int>(kind << 27 | (number & ((1u << 27) - 1)));
  const auto start = [&](const Pieces& pieces, int peer,
                         auto&& begin_transfer) {
    const auto [data, bytes] = pieces(peer);
    if (bytes == 0) {
      return;
    }
    std::vector<at::Tensor> tensors = {bytes_at(data, bytes)};
    try {
      transfers.push_back({begin_transfer(tensors), peer});
    } catch (const std::exception& error) {
      fail(call, std::array{peer}, error);
    }
  };
  // Rank r starts with its neighbour r + 1, so that not all send to one.
  for (int step = 1; step < options_.world_size; ++step) {
    const int to = (options_.rank + step) % options_.world_size;
    const int from =
        (options_.rank + options_.world_size - step) % options_.world_size;
    start(incoming, from,
          [&](auto& tensors) { return group_->recv(tensors, from, tag); });
    start(outgoing, to,
          [&](auto& tensors) { return group_->send(tensors, to, tag); });
  }
}

void GlooTransport::exchange_all(const GlooCall& call, std::uint32_t kind,
                                 std::span<std::byte> all) {
  const std::size_t share =
      all.size() / static_cast<std::size_t>(options_.world_size);
  const auto piece = [&](int rank) {
    return std::pair<const void*, std::int64_t>(
        all.data() + static_cast<std::size_t>(rank) * share,
        static_cast<std::int64_t>(share));
  };
  std::vector<Transfer> transfers;
  exchange(
      call, kind, [&](int) { return piece(options_.rank); }, piece, transfers);
  finish(call, transfers);
}

// What has arrived stays readable after a failure, so that those still missing
// can be told from the others.
void GlooTransport::finish(const GlooCall& call,
                           std::vector<Transfer>& transfers) const {
  std::set<int> missing;
  std::exception_ptr first;
  for (Transfer& transfer : transfers) {
    try {
      transfer.work->wait(first ? kLastLook : options_.timeout);
    } catch (const std::exception&) {
      missing.insert(transfer.peer);
      first = first ? first : std::current_exception();
    }
  }
  transfers.clear();
  if (first) {
    try {
      std::rethrow_exception(first);
    } catch (const std::exception& error) {
      fail(call, std::vector(missing.begin(), missing.end()), error);
    }
  }
}

void GlooTransport::broadcast(const GlooCall& call, void* data,
                              std::int64_t bytes, int root) {
  std::vector<at::Tensor> tensors = {bytes_at(data, bytes)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  try {
    group_->broadcast(tensors, options)->wait();
  } catch (const std::exception& error) {
    fail(call, std::array{root}, error);
  }
}

void GlooTransport::barrier(const GlooCall& call) {
  std::vector<std::byte> arrived(static_cast<std::size_t>(options_.world_size));
  exchange_all(call, static_cast<std::uint32_t>(CommOp::Barrier), arrived);
}

void GlooTransport::compare(const GlooCall& call, std::int64_t bytes,
                            std::size_t num_parts) {
  CallRecord mine = {{}, bytes, static_cast<std::int64_t>(num_parts)};
  const std::string text = fmt::format("{} '{}'", name(call.op), call.label);
  std::strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
  std::vector<CallRecord> all(static_cast<std::size_t>(options_.world_size));
  all[static_cast<std::size_t>(options_.rank)] = mine;
  exchange_all(call, kCompare, std::as_writable_bytes(std::span(all)));
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const CallRecord& theirs = all[static_cast<std::size_t>(peer)];
    if (std::memcmp(&theirs, &mine, sizeof(mine)) != 0) {
      throw CommError(fmt::format(
          "[gloo] ranks disagree: rank {} called {} ({} bytes in {} parts), "
          "rank {} called {} ({} bytes in {} parts). Every rank must make the "
          "same calls in the same order.",
          names_[options_.rank], mine.text, mine.bytes, mine.num_parts,
          names_[peer], theirs.text, theirs.bytes, theirs.num_parts));
    }
  }
}

}  // namespace accordion::detail
