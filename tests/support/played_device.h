// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "accordion/comm/elements.h"
#include "accordion/comm/streams/stream_device.h"
#include "accordion/comm/streams/transport.h"

namespace accordion::testing {

inline constexpr std::size_t kNumStreams = 3;

/// What is known to be done: of each queue, how many of its tasks.
using Clocks = std::array<std::uint64_t, kNumStreams>;

inline void merge(Clocks& into, const Clocks& from) {
  for (std::size_t i = 0; i < kNumStreams; ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

struct PlayedEvent final : detail::StreamEvent {
  explicit PlayedEvent(const Clocks& at) : clocks(at) {}
  Clocks clocks;
};

/// A device in the host's memory that does each task at once, and notes a race
/// wherever two that touch the same bytes, one of them writing, are not ordered
/// by queues and events: what a real device would be free to run at once.
class PlayedDevice final : public detail::StreamDevice {
 public:
  using StreamId = detail::StreamId;
  struct Memory {
    const void* begin;
    std::int64_t bytes;
  };

  /// A broken device: waits of this queue are forgotten.
  std::optional<StreamId> forgets_waits_of;
  /// Events of a device that hangs are never reached.
  bool hangs = false;

  std::optional<int> cuda_device() const override { return std::nullopt; }
  bool holds(const void* address) const override {
    const auto* const at = static_cast<const std::byte*>(address);
    for (const auto& [begin, memory] : memories_) {
      if (at >= begin && at < begin + memory.size()) {
        return true;
      }
    }
    return false;
  }

  std::byte* allocate(std::int64_t bytes, std::string_view) override {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    std::byte* const begin = memory.data();
    memories_.emplace(begin, std::move(memory));
    task(StreamId::Caller, "zeroing", {}, {{begin, bytes}});
    return begin;
  }
  void free(std::byte* memory) noexcept override {
    const auto bytes = static_cast<std::int64_t>(memories_.at(memory).size());
    for (const Access& access : accesses_) {
      const bool known = is_done(access, host_) ||
                         is_done(access, clocks_of(StreamId::Caller));
      if (!known && overlap(access.memory, {memory, bytes})) {
        races.push_back("freed while " + access.what + " uses it");
      }
    }
    std::erase_if(accesses_, [&](const Access& access) {
      return overlap(access.memory, {memory, bytes});
    });
    memories_.erase(memory);
  }

  detail::EventPtr record(StreamId stream) override {
    return std::make_shared<PlayedEvent>(clocks_of(stream));
  }
  void wait(StreamId stream, const detail::StreamEvent& event) override {
    if (forgets_waits_of != stream) {
      merge(clocks_of(stream), clocks_at(event));
    }
  }
  bool reached(const detail::StreamEvent&) const override { return !hangs; }
  void block_until(const detail::StreamEvent& event) noexcept override {
    merge(host_, clocks_at(event));
  }

  void convert(StreamId stream, void* to, DType to_dtype, const void* from,
               DType from_dtype, std::int64_t numel) override {
    task(stream, "a conversion", {{from, numel * element_bytes(from_dtype)}},
         {{to, numel * element_bytes(to_dtype)}});
    detail::convert(to, to_dtype, from, from_dtype, numel);
  }
  void store_sums(StreamId stream, const void* sums,
                  const ReducePart& part) override {
    task(stream, "storing sums",
         {{sums, part.numel * element_bytes(part.full_dtype)}},
         {{part.local, part.numel * element_bytes(part.local_dtype)}});
    detail::SquareSum squares;
    detail::reduce(std::array{sums}, part.full_dtype,
                   {part.local, part.local_dtype, part.reduce_dtype, part.scale,
                    part.accumulate, &squares},
                   part.numel);
    if (part.sum_of_squares != nullptr) {
      *part.sum_of_squares = squares.total();
    }
  }

  /// Gives a queue a task that touches memory.
  void task(StreamId stream, const std::string& what,
            const std::vector<Memory>& reads,
            const std::vector<Memory>& writes) {
    Clocks& clocks = clocks_of(stream);
    merge(clocks, host_);  // what the host waited for is done
    for (const Memory& memory : reads) {
      note({stream, 0, what, memory, false});
    }
    for (const Memory& memory : writes) {
      note({stream, 0, what, memory, true});
    }
    ++clocks[static_cast<std::size_t>(stream)];
  }

  /// The host touches memory itself.
  void host_task(const std::string& what, const std::vector<Memory>& reads,
                 const std::vector<Memory>& writes) {
    const auto check = [&](const Memory& memory, bool is_write) {
      for (const Access& other : accesses_) {
        if ((is_write || other.writes) && !is_done(other, host_) &&
            overlap(memory, other.memory)) {
          races.push_back(what + " and " + other.what);
        }
      }
    };
    for (const Memory& memory : reads) {
      check(memory, false);
    }
    for (const Memory& memory : writes) {
      check(memory, true);
    }
  }

  /// Whether all that `earlier` had when the event was made is done before what
  /// `stream` is given next.
  bool is_before(const detail::StreamEvent& event, StreamId stream) {
    const Clocks& known = clocks_of(stream);
    const Clocks& wanted = clocks_at(event);
    for (std::size_t i = 0; i < kNumStreams; ++i) {
      if (wanted[i] > known[i]) {
        return false;
      }
    }
    return true;
  }

  std::vector<std::string> races;

 private:
  struct Access {
    StreamId stream;
    std::uint64_t number;  // of the task in its queue, from 1
    std::string what;
    Memory memory;
    bool writes;
  };

  static bool overlap(const Memory& a, const Memory& b) {
    const auto* const first = static_cast<const std::byte*>(a.begin);
    const auto* const second = static_cast<const std::byte*>(b.begin);
    return first < second + b.bytes && second < first + a.bytes;
  }
  static const Clocks& clocks_at(const detail::StreamEvent& event) {
    return static_cast<const PlayedEvent&>(event).clocks;
  }
  Clocks& clocks_of(StreamId stream) {
    return clocks_[static_cast<std::size_t>(stream)];
  }
  static bool is_done(const Access& access, const Clocks& clocks) {
    return access.number <= clocks[static_cast<std::size_t>(access.stream)];
  }

  void note(Access access) {
    const Clocks& clocks = clocks_of(access.stream);
    access.number = clocks[static_cast<std::size_t>(access.stream)] + 1;
    for (const Access& other : accesses_) {
      if ((access.writes || other.writes) && other.stream != access.stream &&
          !is_done(other, clocks) && overlap(access.memory, other.memory)) {
        races.push_back(access.what + " and " + other.what);
      }
    }
    accesses_.push_back(std::move(access));
  }

  std::map<std::byte*, std::vector<std::byte>> memories_;
  std::array<Clocks, kNumStreams> clocks_{};
  Clocks host_{};
  std::vector<Access> accesses_;
};

/// Peers that hold a copy of this rank's data, as the fake backend has them.
class PlayedTransport final : public detail::Transport {
 public:
  PlayedTransport(PlayedDevice& device, int rank, int world_size)
      : device_(device), rank_(rank), world_size_(world_size) {}

  void all_gather(detail::StreamId stream,
                  std::span<const detail::InPlace> parts) override {
    for (const detail::InPlace& part : parts) {
      const std::int64_t bytes = part.numel * element_bytes(part.dtype);
      auto* const full = static_cast<std::byte*>(part.full);
      device_.task(stream, "a gather", {}, {{full, bytes * world_size_}});
      for (int rank = 0; rank < world_size_; ++rank) {
        if (rank != rank_) {
          std::memcpy(full + rank * bytes, full + rank_ * bytes,
                      static_cast<std::size_t>(bytes));
        }
      }
    }
  }
  void reduce_scatter(detail::StreamId stream,
                      std::span<const detail::InPlace> parts) override {
    for (const detail::InPlace& part : parts) {
      sum(stream, part, rank_ * part.numel, world_size_);
    }
  }
  void all_reduce(detail::StreamId stream,
                  std::span<const detail::InPlace> parts) override {
    for (const detail::InPlace& part : parts) {
      sum(stream, part, 0, 1);
    }
  }
  void broadcast(detail::StreamId stream, void* data, std::int64_t bytes,
                 int) override {
    device_.task(stream, "a broadcast", {}, {{data, bytes}});
  }

  std::optional<std::string> fault() override { return reported; }
  void abort() noexcept override { aborted = true; }

  std::optional<std::string> reported;
  bool aborted = false;

 private:
  void sum(detail::StreamId stream, const detail::InPlace& part,
           std::int64_t first, int pieces) {
    device_.task(
        stream, "a reduction", {},
        {{part.full, part.numel * pieces * element_bytes(part.dtype)}});
    std::byte* const own = detail::offset(part.full, part.dtype, first);
    const std::vector<const void*> copies(static_cast<std::size_t>(world_size_),
                                          own);
    detail::reduce(copies, part.dtype,
                   {own, part.dtype, part.dtype, 1.0, false}, part.numel);
  }

  PlayedDevice& device_;
  const int rank_;
  const int world_size_;
};

}  // namespace accordion::testing
