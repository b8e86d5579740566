// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/gloo_communicator.h"

#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "accordion/comm/elements.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gloo/gloo_store_state.h"
#include "accordion/comm/gloo/gloo_transport.h"
#include "accordion/comm/part_reducer.h"
#include "accordion/comm/private_buffer.h"
#include "accordion/comm/rank_names.h"

// After gloo_declarations.h, which it needs.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace accordion {

namespace {

using detail::ElementRange;
using detail::GlooCall;
using detail::GlooTransport;
using detail::offset;

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group,
                   const GlooOptions& options)
      : transport_(std::move(group), options) {}

  int rank() const override { return transport_.options().rank; }
  int world_size() const override { return transport_.options().world_size; }
  std::string_view backend() const override { return "gloo"; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override {
    return transport_.options().timeout;
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

 private:
  GlooCall begin(CommOp op, std::string_view label, std::int64_t bytes,
                 std::size_t num_parts);

  GlooTransport transport_;
  CommCounters counters_;
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
  GlooWork(GlooTransport& transport, GlooCall call)
      : transport_(transport), call_(std::move(call)) {}

  void wait() override {
    transport_.finish(call_, transfers);
    if (then) {
      then();
    }
  }
  std::string describe() const override {
    return fmt::format("{} '{}' on rank {}", name(call_.op), call_.label,
                       transport_.options().rank);
  }
  [[nodiscard]] const GlooCall& call() const { return call_; }

  std::vector<GlooTransport::Transfer> transfers;
  std::vector<Arriving> arriving;
  std::function<void()> then;  // once everything arrived

 private:
  GlooTransport& transport_;
  const GlooCall call_;
};

GlooCall GlooCommunicator::begin(CommOp op, std::string_view label,
                                 std::int64_t bytes, std::size_t num_parts) {
  const auto index = static_cast<std::size_t>(op);
  counters_.calls[index] += 1;
  counters_.bytes[index] += bytes;
  GlooCall call = {op, counters_.calls[index], std::string(label)};
  if (transport_.options().debug_calls) {
    transport_.compare(call, bytes, num_parts);
  }
  return call;
}

Work GlooCommunicator::all_gather_into(std::span<const GatherPart> parts,
                                       CommBuffer*, std::string_view label) {
  for (const GatherPart& part : parts) {
    detail::check_part(part, "all_gather_into");
  }
  auto work = std::make_unique<GlooWork>(
      transport_, begin(CommOp::AllGather, label,
                        detail::full_bytes(parts, world_size()), parts.size()));
  for (const GatherPart& part : parts) {
    const std::int64_t bytes = part.numel * element_bytes(part.full_dtype);
    const auto piece = [&](int rank) {
      return std::pair<const void*, std::int64_t>(
          offset(part.full, part.full_dtype, rank * part.numel), bytes);
    };
    detail::convert(offset(part.full, part.full_dtype, rank() * part.numel),
                    part.full_dtype, part.local, part.local_dtype, part.numel);
    transport_.exchange(
        work->call(), [&](int) { return piece(rank()); }, piece,
        work->transfers);
  }
  return Work(std::move(work));
}

// Starts moving, for each rank, its range of the part to it. `range_of` says
// which range of `part.full` a rank sums.
Arriving start_reduction(GlooTransport& transport, const ReducePart& part,
                         const std::function<ElementRange(int rank)>& range_of,
                         const GlooCall& call,
                         std::vector<GlooTransport::Transfer>& transfers) {
  const DType wire = part.full_dtype;
  const int me = transport.options().rank;
  Arriving arriving = {part, range_of(me), {}, {}};
  const std::int64_t bytes = arriving.range.count * element_bytes(wire);
  arriving.received.resize(
      static_cast<std::size_t>(bytes * transport.options().world_size));
  for (int rank = 0; rank < transport.options().world_size; ++rank) {
    arriving.sources.push_back(
        rank == me ? offset(part.full, wire, arriving.range.first)
                   : arriving.received.data() + rank * bytes);
  }
  transport.exchange(
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
      transport_, begin(CommOp::ReduceScatter, label,
                        detail::full_bytes(parts, world_size()), parts.size()));
  for (const ReducePart& part : parts) {
    work->arriving.push_back(start_reduction(
        transport_, part,
        [&](int rank) {
          return ElementRange{rank * part.numel, part.numel};
        },
        work->call(), work->transfers));
  }
  work->then = [state = work.get()] {
    for (const Arriving& arrived : state->arriving) {
      detail::reduce(arrived.sources, arrived.part);
    }
  };
  return Work(std::move(work));
}

// Sums one part, whose operands have arrived, and gathers the sums. They travel
// in reduce_dtype, which they are rounded to.
void finish_all_reduce(GlooTransport& transport, const Arriving& arrived,
                       const GlooCall& call) {
  const ReducePart& part = arrived.part;
  const DType dtype = part.reduce_dtype;
  std::vector<std::byte> sums(
      static_cast<std::size_t>(part.numel * element_bytes(dtype)));
  const detail::ReduceTarget own = {
      offset(sums.data(), dtype, arrived.range.first), dtype, dtype, part.scale,
      false};
  detail::reduce(arrived.sources, part.full_dtype, own, arrived.range.count);
  const auto piece = [&](int rank) {
    const ElementRange range = detail::all_reduce_range(
        part.numel, rank, transport.options().world_size);
    return std::pair<const void*, std::int64_t>(
        offset(sums.data(), dtype, range.first),
        range.count * element_bytes(dtype));
  };
  std::vector<GlooTransport::Transfer> transfers;
  transport.exchange(
      call, [&](int) { return piece(transport.options().rank); }, piece,
      transfers);
  transport.finish(call, transfers);
  detail::PartReducer local(part);
  local.add_sums(sums.data(), dtype, part.numel);
  local.finish();
}

Work GlooCommunicator::all_reduce(std::span<const ReducePart> parts,
                                  CommBuffer*, std::string_view label) {
  for (const ReducePart& part : parts) {
    detail::check_part(part, "all_reduce");
  }
  auto work = std::make_unique<GlooWork>(
      transport_, begin(CommOp::AllReduce, label, detail::full_bytes(parts, 1),
                        parts.size()));
  for (const ReducePart& part : parts) {
    work->arriving.push_back(start_reduction(
        transport_, part,
        [&](int rank) {
          return detail::all_reduce_range(part.numel, rank, world_size());
        },
        work->call(), work->transfers));
  }
  work->then = [this, state = work.get()] {
    for (const Arriving& arrived : state->arriving) {
      finish_all_reduce(transport_, arrived, state->call());
    }
  };
  return Work(std::move(work));
}

void GlooCommunicator::broadcast(void* data, std::int64_t bytes, int root,
                                 std::string_view label) {
  const GlooCall call = begin(CommOp::Broadcast, label, bytes, 1);
  transport_.broadcast(call, data, bytes, root);
}

void GlooCommunicator::barrier(std::string_view label) {
  transport_.barrier(begin(CommOp::Barrier, label, 0, 0));
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
