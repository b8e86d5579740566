// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/gloo_communicator.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "accordion/comm/elements.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gloo/gloo_store_state.h"
#include "accordion/comm/private_buffer.h"
#include "accordion/comm/rank_names.h"

// After gloo_declarations.h, which it needs.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace accordion {

namespace {

using detail::ElementRange;
using detail::offset;

// Time for what has arrived to be found so, once a peer is missing.
constexpr auto kLastLook = std::chrono::milliseconds(10);

at::Tensor bytes_at(const void* data, std::int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::kByte);
}

// One message under way, to or from `peer`.
struct Transfer {
  c10::intrusive_ptr<c10d::Work> work;
  int peer;
};

struct Call {
  CommOp op;
  std::int64_t number;  ///< among those of its kind
  std::string label;
};

// Messages of a kind are counted apart: one kind per operation, and this.
constexpr std::uint32_t kCompare = kNumCommOps;

// What ranks compare in debug mode; travels as bytes.
struct CallRecord {
  char text[128];
  std::int64_t bytes;
  std::int64_t num_parts;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group,
                   const GlooOptions& options)
      : group_(std::move(group)), options_(options), names_(options.members) {}

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  std::string_view backend() const override { return "gloo"; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override {
    return options_.timeout;
  }

  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    begin(CommOp::Allocate, label, bytes, 0);
    return detail::make_private_buffer(bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    return allocate_common(bytes, label);
  }
  // What leaves this rank has left its memory when wait() returns.
  void acquire(CommBuffer&) override {}
  void release(CommBuffer&) override {}

  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer*,
                       std::string_view label) override;
  Work reduce_scatter_into(std::span<const ReducePart> parts, CommBuffer*,
                           std::string_view label) override;
  Work all_reduce(std::span<const ReducePart> parts, CommBuffer*,
                  std::string_view label) override;
  void broadcast(void* data, std::int64_t bytes, int root,
                 std::string_view label) override;
  void barrier(std::string_view label) override;

  using Pieces = std::function<std::pair<const void*, std::int64_t>(int rank)>;
  /// Exchanges pieces with every peer: sends the bytes that `outgoing` gives
  /// for it, and receives into those that `incoming` gives. In the background;
  /// appends to `transfers`.
  void exchange(const Call& call, const Pieces& outgoing,
                const Pieces& incoming, std::vector<Transfer>& transfers) {
    exchange(call, static_cast<std::uint32_t>(call.op), outgoing, incoming,
             transfers);
  }
  void finish(const Call& call, std::vector<Transfer>& transfers) const;

 private:
  Call begin(CommOp op, std::string_view label, std::int64_t bytes,
             std::size_t num_parts);
  void compare(const Call& call, std::int64_t bytes, std::size_t num_parts);
  void exchange(const Call& call, std::uint32_t kind, const Pieces& outgoing,
                const Pieces& incoming, std::vector<Transfer>& transfers);
  /// Fills in every rank's share of `all`, of which this rank's is there.
  void exchange_all(const Call& call, std::uint32_t kind,
                    std::span<std::byte> all);
  [[noreturn]] void fail(const Call& call, std::string_view whom,
                         const std::exception& cause) const;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  const GlooOptions options_;
  const detail::RankNames names_;
  CommCounters counters_;
  std::array<std::uint32_t, kNumCommOps + 1> messages_{};  // by kind
};

// A part of a reduction whose operands are on their way to this rank.
struct Arriving {
  ReducePart part;
  ElementRange range;  // of `part`, summed here
  std::vector<std::byte> received;
  std::vector<const void*> sources;  // by rank
};

class GlooWork final : public Work::State {
 public:
  GlooWork(GlooCommunicator& communicator, Call call)
      : communicator_(communicator), call_(std::move(call)) {}

  void wait() override {
    communicator_.finish(call_, transfers);
    if (then) {
      then();
    }
  }
  std::string describe() const override {
    return fmt::format("{} '{}' on rank {}", name(call_.op), call_.label,
                       communicator_.rank());
  }
  [[nodiscard]] const Call& call() const { return call_; }

  std::vector<Transfer> transfers;
  std::vector<Arriving> arriving;
  std::function<void()> then;  // once everything arrived

 private:
  GlooCommunicator& communicator_;
  const Call call_;
};

void GlooCommunicator::fail(const Call& call, std::string_view whom,
                            const std::exception& cause) const {
  throw CommError(fmt::format(
      "[gloo] {} '{}' (call {} of its kind) failed on {} while waiting for {} "
      "(timeout {} ms): {}",
      name(call.op), call.label, call.number,
      names_.one_of(rank(), world_size()), whom, options_.timeout.count(),
      first_line(cause)));
}

Call GlooCommunicator::begin(CommOp op, std::string_view label,
                             std::int64_t bytes, std::size_t num_parts) {
  const auto index = static_cast<std::size_t>(op);
  counters_.calls[index] += 1;
  counters_.bytes[index] += bytes;
  Call call = {op, counters_.calls[index], std::string(label)};
  if (options_.debug_calls) {
    compare(call, bytes, num_parts);
  }
  return call;
}

void GlooCommunicator::compare(const Call& call, std::int64_t bytes,
                               std::size_t num_parts) {
  CallRecord mine = {{}, bytes, static_cast<std::int64_t>(num_parts)};
  const std::string text = fmt::format("{} '{}'", name(call.op), call.label);
  std::strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
  std::vector<CallRecord> all(static_cast<std::size_t>(world_size()));
  all[static_cast<std::size_t>(rank())] = mine;
  exchange_all(call, kCompare, std::as_writable_bytes(std::span(all)));
  for (int peer = 0; peer < world_size(); ++peer) {
    const CallRecord& theirs = all[static_cast<std::size_t>(peer)];
    if (std::memcmp(&theirs, &mine, sizeof(mine)) != 0) {
      throw CommError(fmt::format(
          "[gloo] ranks disagree: rank {} called {} ({} bytes in {} parts), "
          "rank {} called {} ({} bytes in {} parts). Every rank must make the "
          "same calls in the same order.",
          names_[rank()], mine.text, mine.bytes, mine.num_parts, names_[peer],
          theirs.text, theirs.bytes, theirs.num_parts));
    }
  }
}

void GlooCommunicator::exchange(const Call& call, std::uint32_t kind,
                                const Pieces& outgoing, const Pieces& incoming,
                                std::vector<Transfer>& transfers) {
  // Messages are matched by their tag, which counts per kind of operation: so
  // kinds may overtake each other.
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
      fail(call, names_.list(std::array{peer}), error);
    }
  };
  // Rank r starts with its neighbour r + 1, so that not all send to one.
  for (int step = 1; step < world_size(); ++step) {
    const int to = (rank() + step) % world_size();
    const int from = (rank() + world_size() - step) % world_size();
    start(incoming, from,
          [&](auto& tensors) { return group_->recv(tensors, from, tag); });
    start(outgoing, to,
          [&](auto& tensors) { return group_->send(tensors, to, tag); });
  }
}

void GlooCommunicator::exchange_all(const Call& call, std::uint32_t kind,
                                    std::span<std::byte> all) {
  const std::size_t share = all.size() / static_cast<std::size_t>(world_size());
  const auto piece = [&](int rank) {
    return std::pair<const void*, std::int64_t>(
        all.data() + static_cast<std::size_t>(rank) * share,
        static_cast<std::int64_t>(share));
  };
  std::vector<Transfer> transfers;
  exchange(
      call, kind, [&](int) { return piece(rank()); }, piece, transfers);
  finish(call, transfers);
}

// What has arrived stays readable after a failure, so that those still missing
// can be told from the others.
void GlooCommunicator::finish(const Call& call,
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
      fail(call, names_.list(std::vector(missing.begin(), missing.end())),
           error);
    }
  }
}

Work GlooCommunicator::all_gather_into(std::span<const GatherPart> parts,
                                       CommBuffer*, std::string_view label) {
  for (const GatherPart& part : parts) {
    detail::check_part(part, "all_gather_into");
  }
  auto work = std::make_unique<GlooWork>(
      *this, begin(CommOp::AllGather, label,
                   detail::full_bytes(parts, world_size()), parts.size()));
  for (const GatherPart& part : parts) {
    const std::int64_t bytes = part.numel * element_bytes(part.full_dtype);
    const auto piece = [&](int rank) {
      return std::pair<const void*, std::int64_t>(
          offset(part.full, part.full_dtype, rank * part.numel), bytes);
    };
    detail::convert(offset(part.full, part.full_dtype, rank() * part.numel),
                    part.full_dtype, part.local, part.local_dtype, part.numel);
    exchange(
        work->call(), [&](int) { return piece(rank()); }, piece,
        work->transfers);
  }
  return Work(std::move(work));
}

// Starts moving, for each rank, its range of the part to it. `range_of` says
// which range of `part.full` a rank sums.
Arriving start_reduction(GlooCommunicator& communicator, const ReducePart& part,
                         const std::function<ElementRange(int rank)>& range_of,
                         const Call& call, std::vector<Transfer>& transfers) {
  const DType wire = part.full_dtype;
  const int me = communicator.rank();
  Arriving arriving = {part, range_of(me), {}, {}};
  const std::int64_t bytes = arriving.range.count * element_bytes(wire);
  arriving.received.resize(
      static_cast<std::size_t>(bytes * communicator.world_size()));
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    arriving.sources.push_back(
        rank == me ? offset(part.full, wire, arriving.range.first)
                   : arriving.received.data() + rank * bytes);
  }
  communicator.exchange(
      call,
      [&](int rank) {
        const ElementRange theirs = range_of(rank);
        return std::pair<const void*, std::int64_t>(
            offset(part.full, wire, theirs.first),
            theirs.count * element_bytes(wire));
      },
      [&](int rank) {
        return std::pair(arriving.sources[static_cast<std::size_t>(rank)],
                         bytes);
      },
      transfers);
  return arriving;
}

Work GlooCommunicator::reduce_scatter_into(std::span<const ReducePart> parts,
                                           CommBuffer*,
                                           std::string_view label) {
  for (const ReducePart& part : parts) {
    detail::check_part(part, "reduce_scatter_into");
  }
  auto work = std::make_unique<GlooWork>(
      *this, begin(CommOp::ReduceScatter, label,
                   detail::full_bytes(parts, world_size()), parts.size()));
  for (const ReducePart& part : parts) {
    work->arriving.push_back(start_reduction(
        *this, part,
        [&](int rank) {
          return ElementRange{rank * part.numel, part.numel};
        },
        work->call(), work->transfers));
  }
  work->then = [state = work.get()] {
    for (const Arriving& arrived : state->arriving) {
      detail::reduce(arrived.sources, arrived.part.full_dtype,
                     detail::target_of(arrived.part), arrived.range.count);
    }
  };
  return Work(std::move(work));
}

// Sums one part, whose operands have arrived, and gathers the sums. They travel
// in reduce_dtype, which they are rounded to.
void finish_all_reduce(GlooCommunicator& communicator, const Arriving& arrived,
                       const Call& call) {
  const ReducePart& part = arrived.part;
  const DType dtype = part.reduce_dtype;
  std::vector<std::byte> sums(
      static_cast<std::size_t>(part.numel * element_bytes(dtype)));
  const detail::ReduceTarget own = {
      offset(sums.data(), dtype, arrived.range.first), dtype, dtype, part.scale,
      false};
  detail::reduce(arrived.sources, part.full_dtype, own, arrived.range.count);
  const auto piece = [&](int rank) {
    const ElementRange range =
        detail::all_reduce_range(part.numel, rank, communicator.world_size());
    return std::pair<const void*, std::int64_t>(
        offset(sums.data(), dtype, range.first),
        range.count * element_bytes(dtype));
  };
  std::vector<Transfer> transfers;
  communicator.exchange(
      call, [&](int) { return piece(communicator.rank()); }, piece, transfers);
  communicator.finish(call, transfers);
  const detail::ReduceTarget local = {part.local, part.local_dtype, dtype, 1.0,
                                      part.accumulate};
  detail::reduce(std::array<const void*, 1>{sums.data()}, dtype, local,
                 part.numel);
}

Work GlooCommunicator::all_reduce(std::span<const ReducePart> parts,
                                  CommBuffer*, std::string_view label) {
  for (const ReducePart& part : parts) {
    detail::check_part(part, "all_reduce");
  }
  auto work = std::make_unique<GlooWork>(
      *this, begin(CommOp::AllReduce, label, detail::full_bytes(parts, 1),
                   parts.size()));
  for (const ReducePart& part : parts) {
    work->arriving.push_back(start_reduction(
        *this, part,
        [&](int rank) {
          return detail::all_reduce_range(part.numel, rank, world_size());
        },
        work->call(), work->transfers));
  }
  work->then = [this, state = work.get()] {
    for (const Arriving& arrived : state->arriving) {
      finish_all_reduce(*this, arrived, state->call());
    }
  };
  return Work(std::move(work));
}

void GlooCommunicator::broadcast(void* data, std::int64_t bytes, int root,
                                 std::string_view label) {
  const Call call = begin(CommOp::Broadcast, label, bytes, 1);
  std::vector<at::Tensor> tensors = {bytes_at(data, bytes)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  try {
    group_->broadcast(tensors, options)->wait();
  } catch (const std::exception& error) {
    fail(call, names_.list(std::array{root}), error);
  }
}

void GlooCommunicator::barrier(std::string_view label) {
  const Call call = begin(CommOp::Barrier, label, 0, 0);
  std::vector<std::byte> arrived(static_cast<std::size_t>(world_size()));
  exchange_all(call, static_cast<std::uint32_t>(CommOp::Barrier), arrived);
}

}  // namespace

std::unique_ptr<Communicator> connect_gloo(const GlooStore& store,
                                           const GlooOptions& options) {
  if (options.world_size == 1) {
    return make_lone_communicator("gloo", options.timeout);
  }
  using Group = c10d::ProcessGroupGloo;
  // Who does not come is told apart here; Gloo only says that it waited.
  store.exchange("arrived at " + options.name, "", options.rank,
                 detail::RankNames(options.members), options.world_size);
  auto group_options = Group::Options::create(options.timeout);
  group_options->devices = {store.state().device()};
  try {
    return std::make_unique<GlooCommunicator>(
        c10::make_intrusive<Group>(c10::make_intrusive<c10d::PrefixStore>(
                                       options.name, store.state().store),
                                   options.rank, options.world_size,
                                   group_options),
        options);
  } catch (const std::exception& error) {
    throw CommError(fmt::format(
        "[gloo] {} cannot connect to the other ranks of '{}' within {} ms, "
        "though all have started. It listens on {}; do firewalls let TCP "
        "connections between all hosts through? {}",
        detail::RankNames(options.members)
            .one_of(options.rank, options.world_size),
        options.name, options.timeout.count(), store.state().place,
        first_line(error)));
  }
}

}  // namespace accordion
