// SPDX-License-Identifier: BSD-3-Clause
// The words of Control's errors.
#include <fmt/format.h>

#include "accordion/comm/shm/control.h"

namespace accordion::detail {

std::string Control::call_text(int rank, CommOp op, std::uint64_t call) const {
  const Descriptor& descriptor =
      block_.row(rank).ring[static_cast<std::size_t>(op)][call % kRingSize];
  return fmt::format("{} '{}' ({} bytes, call {} of its kind)", name(op),
                     descriptor.label.data(), descriptor.bytes, call);
}

std::string Control::last_call_text(int rank) const {
  const std::uint64_t last =
      block_.row(rank).last_call.load(std::memory_order_acquire);
  if (last == 0) {
    return "has called nothing yet";
  }
  return "last called " + call_text(rank, static_cast<CommOp>(last >> 56),
                                    last & 0xffffffffffffff);
}

std::string Control::blocked_text(int rank, std::uint64_t blocked) const {
  const Counter counter = blocked_counter(blocked);
  const std::uint64_t threshold = blocked_threshold(blocked);
  if (counter < kNumCommOps) {
    return "called " + call_text(rank, static_cast<CommOp>(counter), threshold);
  }
  if (counter < kReduced) {
    const auto op = static_cast<CommOp>(counter - kNumCommOps);
    return "waits for the data of " + call_text(rank, op, threshold);
  }
  if (counter == kReduced) {
    return "waits for the sums of " +
           call_text(rank, CommOp::AllReduce, threshold);
  }
  if (counter < kFirstBuffer) {
    return last_call_text(rank);
  }
  return fmt::format("waits for buffer {} to be released and {}",
                     counter - kFirstBuffer, last_call_text(rank));
}

void Control::check_same_call(CommOp op, std::uint64_t call) {
  const auto descriptor = [&](int rank) -> const Descriptor& {
    return block_.row(rank)
        .ring[static_cast<std::size_t>(op)][call % kRingSize];
  };
  const Descriptor& mine = descriptor(rank_);
  for (int peer = 0; peer < world_size_; ++peer) {
    const Descriptor& theirs = descriptor(peer);
    if (mine.label == theirs.label && mine.bytes == theirs.bytes &&
        mine.parts_hash == theirs.parts_hash) {
      continue;
    }
    const bool look_alike =
        mine.label == theirs.label && mine.bytes == theirs.bytes;
    fail(fmt::format(
        "[shm] ranks disagree: rank {} called {}, rank {} called {}{}. Every "
        "rank must make the same calls in the same order.",
        names_[rank_], call_text(rank_, op, call), names_[peer],
        call_text(peer, op, call),
        look_alike ? ", with other element counts, dtypes, root or place in "
                     "the buffer"
                   : ""));
  }
}

void Control::fail_disagreement(int peer, const Wait& wait) {
  const std::uint64_t mine = pack_blocked(wait.counter, wait.threshold);
  const std::uint64_t theirs = block_.row(peer).blocked.load();
  fail(fmt::format(
      "[shm] ranks disagree: rank {} {}, rank {} {}, and each waits for the "
      "other. Every rank must make the same calls in the same order.",
      names_[rank_], blocked_text(rank_, mine), names_[peer],
      blocked_text(peer, theirs)));
}

void Control::fail_peer(int peer, const Wait& wait, std::string_view how) {
  fail(fmt::format(
      "[shm] rank {} (pid {}) {}{} Meanwhile {} was waiting in {} '{}' (call "
      "{} of its kind) {}; rank {} {}.",
      names_[peer], block_.row(peer).pid, how, how.ends_with('.') ? "" : ".",
      names_.one_of(rank_, world_size_), name(wait.op), wait.label, wait.call,
      wait.purpose, names_[peer], last_call_text(peer)));
}

void Control::fail_timeout(const Wait& wait) {
  std::string late;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (!reached_by(peer, wait)) {
      late +=
          fmt::format("{}rank {} (pid {}) {}", late.empty() ? "" : "; ",
                      names_[peer], block_.row(peer).pid, last_call_text(peer));
    }
  }
  fail(fmt::format(
      "[shm] {} '{}' (call {} of its kind) timed out on {}: {} ms "
      "passed waiting {}. Still missing: {}. Raise the timeout if these ranks "
      "are only slow.",
      name(wait.op), wait.label, wait.call, names_.one_of(rank_, world_size_),
      timeout_.count(), wait.purpose, late));
}

}  // namespace accordion::detail
