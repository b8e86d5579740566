// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/rank_names.h"
#include "accordion/comm/shm/control_block.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion::detail {

/// Tells whether peers still live.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  /// False once the rank's process is gone.
  [[nodiscard]] virtual bool alive(int rank) = 0;
};

/// One condition to wait for, and how to speak of it.
struct Wait {
  Counter counter;
  std::uint64_t threshold;
  CommOp op;
  std::string_view label;
  std::uint64_t call;        ///< number of the call among those of its kind
  std::string_view purpose;  ///< "for every rank to call it"
};

/// This rank's side of the control block: publishes counters and waits for
/// those of the peers. See [Note: shm protocol].
///
/// Waiting spins for a moment while there is a core per rank, then sleeps, and
/// at least every 50 ms looks whether a peer died, failed, left, or is blocked
/// on something that this rank has not done while it has not done what this
/// rank is blocked on.
class Control {
 public:
  /// `block` and `watch` outlive this object; the block starts zeroed.
  Control(ControlBlock& block, PeerWatch& watch, const ShmOptions& options);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  /// Tells the peers that this rank left.
  ~Control();

  /// Raises an own counter and wakes the peers that sleep.
  void publish(Counter counter, std::uint64_t value);

  /// Publishes the descriptor of call number `call` of kind `op`.
  void post(CommOp op, std::uint64_t call, std::string_view label,
            std::int64_t bytes, std::uint64_t parts_hash);

  /// Blocks until the condition holds on every rank; meanwhile runs `progress`
  /// whenever something happened.
  ///
  /// Throws CommError; afterwards failed() is true, the peers are told, and
  /// every later wait throws the same again
  void wait(const Wait& wait, const std::function<void()>& progress);

  /// Whether the condition holds now.
  [[nodiscard]] bool reached(Counter counter, std::uint64_t threshold) const;

  /// Throws CommError, after telling the peers, where the descriptors of a call
  /// that everybody posted differ.
  void check_same_call(CommOp op, std::uint64_t call);

  /// Collects every rank's outcome of a step (empty: success) and throws
  /// CommError with the first one that is not empty, on every rank.
  void agree(std::string_view outcome, const Wait& wait);

  /// Fails here, with `reason`, and tells the peers. Every later wait throws.
  void abandon(std::string_view reason);

  [[nodiscard]] bool failed() const { return !failure_.empty(); }
  /// Throws again what made an earlier wait fail.
  void check_usable() const;

  [[nodiscard]] std::uint64_t own(Counter counter) const;
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  struct Suspicion {
    std::uint64_t blocked = 0;
    std::uint64_t heartbeat = 0;
  };

  [[nodiscard]] bool may_spin();
  [[nodiscard]] bool spin(const Wait& wait);
  [[nodiscard]] bool reached_by(int rank, const Wait& wait) const;
  void check_peers(const Wait& wait);
  void check_deaths(const Wait& wait);
  void check_disagreement(int peer, const Wait& wait);
  void set_failed(std::string message);
  [[noreturn]] void fail(std::string message);
  [[noreturn]] void fail_disagreement(int peer, const Wait& wait);
  [[noreturn]] void fail_timeout(const Wait& wait);
  [[noreturn]] void fail_peer(int peer, const Wait& wait, std::string_view how);
  void sleep(std::uint32_t event) const;

  // Words for messages.
  [[nodiscard]] std::string call_text(int rank, CommOp op,
                                      std::uint64_t call) const;
  [[nodiscard]] std::string blocked_text(int rank, std::uint64_t blocked) const;
  [[nodiscard]] std::string last_call_text(int rank) const;

  ControlBlock& block_;
  PeerWatch& watch_;
  const int rank_;
  const int world_size_;
  const RankNames names_;
  const std::chrono::milliseconds timeout_;
  std::optional<bool> core_per_rank_;  ///< once all ranks said where they run
  RankRow& row_;
  std::uint64_t steps_agreed_ = 0;
  std::string failure_;
  std::vector<Suspicion> suspicions_;  ///< by peer
};

}  // namespace accordion::detail
