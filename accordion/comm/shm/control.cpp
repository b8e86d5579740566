// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/control.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace accordion::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Longest sleep between two looks at the peers.
constexpr auto kLook = std::chrono::milliseconds(50);

// About what a futex sleep and wake cost together.
constexpr auto kSpin = std::chrono::microseconds(30);

// After so long the peer may be waiting for this very core.
constexpr auto kSpinAlone = std::chrono::microseconds(3);

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not the private variants: the sleepers are other processes.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value,
          timeout, nullptr, 0);
}

void wake_sleepers(ControlBlock& block) {
  block.event.fetch_add(1);
  if (block.sleepers.load() != 0) {
    futex(block.event, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

template <std::size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

}  // namespace

Control::Control(ControlBlock& block, PeerWatch& watch,
                 const ShmOptions& options)
    : block_(block),
      watch_(watch),
      rank_(options.rank),
      world_size_(options.world_size),
      names_(options.members),
      timeout_(options.timeout),
      row_(block.row(rank_)),
      suspicions_(static_cast<std::size_t>(world_size_)) {
  row_.pid = getpid();
  const CoreSet::Words cores = CoreSet::of_this_thread().words();
  std::copy(cores.begin(), cores.end(), row_.cores.begin());
}

Control::~Control() {
  RankState running = RankState::Running;
  row_.state.compare_exchange_strong(running, RankState::Left);
  wake_sleepers(block_);
}

std::uint64_t Control::own(Counter counter) const {
  return row_.counters[static_cast<std::size_t>(counter)].load(
      std::memory_order_relaxed);
}

void Control::publish(Counter counter, std::uint64_t value) {
  row_.counters[static_cast<std::size_t>(counter)].store(
      value, std::memory_order_release);
  wake_sleepers(block_);
}

void Control::post(CommOp op, std::uint64_t call, std::string_view label,
                   std::int64_t bytes, std::uint64_t parts_hash) {
  Descriptor& slot = row_.ring[static_cast<std::size_t>(op)][call % kRingSize];
  copy_text(slot.label, label);
  slot.bytes = bytes;
  slot.parts_hash = parts_hash;
  row_.last_call.store(static_cast<std::uint64_t>(op) << 56 | call,
                       std::memory_order_release);
  publish(posted(op), call);
}

bool Control::reached_by(int rank, const Wait& wait) const {
  return block_.row(rank).counters[static_cast<std::size_t>(wait.counter)].load(
             std::memory_order_acquire) >= wait.threshold;
}

bool Control::reached(Counter counter, std::uint64_t threshold) const {
  const Wait wait{counter, threshold, {}, {}, 0, {}};
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!reached_by(rank, wait)) {
      return false;
    }
  }
  return true;
}

/// Ranks may be bound to cores of their own, or share all of them.
bool Control::may_spin() {
  if (!core_per_rank_) {
    CoreSet all;
    for (int rank = 0; rank < world_size_; ++rank) {
      CoreSet::Words words;
      const auto& cores = block_.row(rank).cores;
      std::copy(cores.begin(), cores.end(), words.begin());
      const CoreSet theirs(words);
      if (theirs.count() == 0) {
        return false;  // not here yet
      }
      all |= theirs;
    }
    core_per_rank_ = world_size_ <= all.count();
  }
  return *core_per_rank_;
}

bool Control::spin(const Wait& wait) {
  if (!may_spin()) {
    return false;
  }
  const auto start = Clock::now();
  auto now = start;
  for (; now < start + kSpin; now = Clock::now()) {
    if (now > start + kSpinAlone) {
      sched_yield();
    }
    for (int turn = 0; turn < 16; ++turn) {
      if (reached(wait.counter, wait.threshold)) {
        return true;
      }
      pause_cpu();
    }
  }
  return false;
}

void Control::wait(const Wait& wait, const std::function<void()>& progress) {
  check_usable();
  if (reached(wait.counter, wait.threshold) || spin(wait)) {
    return;
  }
  std::fill(suspicions_.begin(), suspicions_.end(), Suspicion{});
  row_.blocked.store(pack_blocked(wait.counter, wait.threshold));
  const auto start = Clock::now();
  auto next_look = start + kLook;
  while (true) {
    const std::uint32_t event = block_.event.load();
    if (reached(wait.counter, wait.threshold)) {
      break;
    }
    progress();
    row_.heartbeat.fetch_add(1);
    check_peers(wait);
    if (Clock::now() >= next_look) {
      check_deaths(wait);
      next_look = Clock::now() + kLook;
    }
    if (Clock::now() - start >= timeout_) {
      fail_timeout(wait);
    }
    sleep(event);
  }
  row_.blocked.store(0);
}

void Control::sleep(std::uint32_t event) const {
  const auto longest = std::min<std::chrono::nanoseconds>(kLook, timeout_);
  const timespec time{0, static_cast<long>(longest.count())};
  block_.sleepers.fetch_add(1);
  futex(block_.event, FUTEX_WAIT, event, &time);
  block_.sleepers.fetch_sub(1);
}

void Control::check_peers(const Wait& wait) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    const RankRow& row = block_.row(peer);
    // The state first: what a rank published before it left still counts.
    const RankState state = row.state.load();
    if (reached_by(peer, wait)) {
      continue;
    }
    if (state == RankState::Left) {
      fail_peer(peer, wait, "closed its communicator");
    }
    if (state == RankState::Failed) {
      if (row.disagrees_with.load() == static_cast<std::uint32_t>(rank_) + 1) {
        fail_disagreement(peer, wait);
      }
      fail_peer(peer, wait, fmt::format("failed: {}", row.failure.data()));
    }
    check_disagreement(peer, wait);
  }
}

void Control::check_deaths(const Wait& wait) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && !watch_.alive(peer) && !reached_by(peer, wait)) {
      fail_peer(peer, wait, "died");
    }
  }
}

// Each waits for the other. Neither can do what the other needs, because a
// blocked rank does nothing else, except for what `progress` does: so the peer
// must be seen to go round its loop once, from start to end, after this rank
// was blocked.
void Control::check_disagreement(int peer, const Wait& wait) {
  const RankRow& row = block_.row(peer);
  Suspicion& suspicion = suspicions_[static_cast<std::size_t>(peer)];
  const std::uint64_t blocked = row.blocked.load();
  const bool mutual = blocked != 0 && own(blocked_counter(blocked)) <
                                          blocked_threshold(blocked);
  if (!mutual) {
    suspicion = {};
    return;
  }
  const std::uint64_t heartbeat = row.heartbeat.load();
  if (suspicion.blocked != blocked) {
    suspicion = {blocked, heartbeat};
    return;
  }
  if (heartbeat >= suspicion.heartbeat + 2 && !reached_by(peer, wait) &&
      row.blocked.load() == blocked) {
    row_.disagrees_with.store(static_cast<std::uint32_t>(peer) + 1);
    fail_disagreement(peer, wait);
  }
}

void Control::check_usable() const {
  if (failed()) {
    throw CommError(failure_);
  }
}

void Control::set_failed(std::string message) {
  failure_ = std::move(message);
  copy_text(row_.failure, failure_);
  row_.state.store(RankState::Failed);
  wake_sleepers(block_);
}

void Control::fail(std::string message) {
  set_failed(std::move(message));
  throw CommError(failure_);
}

void Control::abandon(std::string_view reason) {
  if (!failed()) {
    set_failed(std::string(reason));
  }
}

void Control::agree(std::string_view outcome, const Wait& wait) {
  const std::uint64_t step = ++steps_agreed_;
  copy_text(row_.outcome[step % 2], outcome);
  publish(kAgreed, step);
  Wait all = wait;
  all.counter = kAgreed;
  all.threshold = step;
  this->wait(all, [] {});
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string_view theirs = block_.row(rank).outcome[step % 2].data();
    if (!theirs.empty()) {
      throw CommError(
          fmt::format("{} ({})", theirs, names_.one_of(rank, world_size_)));
    }
  }
}

}  // namespace accordion::detail
