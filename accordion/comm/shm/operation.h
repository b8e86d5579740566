// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/shm/control.h"
#include "accordion/comm/shm/rank_link.h"
#include "accordion/comm/shm/shm_buffer.h"

namespace accordion::detail {

/// What the operations of one communicator work with.
struct ShmContext {
  int rank;
  int world_size;
  RankLink& link;
  Control& control;
  /// Does what an earlier call had to put off; see ShmCommunicator::progress.
  std::function<void()> progress;
  std::uint64_t rounds = 0;  ///< of the staging area, begun by this rank

  /// Where `rank` puts its data of a round.
  [[nodiscard]] std::byte* stage(int rank_of_stage, std::uint64_t round) const {
    return link.control_memory().data() +
           staging_offset(world_size, rank_of_stage) +
           static_cast<std::int64_t>(round % 2) * kStageBytes;
  }
};

/// One call of a collective, from its start to its completion.
class Operation {
 public:
  Operation(ShmContext& context, CommOp op, std::uint64_t call,
            std::string_view label)
      : context_(context), op_(op), call_(call), label_(label) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  [[nodiscard]] CommOp op() const { return op_; }
  [[nodiscard]] std::uint64_t call() const { return call_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] bool completed() const { return completed_; }
  /// Whether it goes through the staging area, whose rounds every rank takes
  /// together.
  [[nodiscard]] virtual bool staged() const { return false; }

  /// Waits for every rank's call, compares them, and does this rank's part.
  /// Throws CommError.
  void complete() {
    wait(posted(op_), call_, "for every rank to call it");
    context_.control.check_same_call(op_, call_);
    finish();
    completed_ = true;
  }

 protected:
  virtual void finish() = 0;
  void wait(Counter counter, std::uint64_t threshold,
            std::string_view purpose) {
    context_.control.wait({counter, threshold, op_, label_, call_, purpose},
                          context_.progress);
  }

  ShmContext& context_;

 private:
  const CommOp op_;
  const std::uint64_t call_;
  const std::string label_;
  bool completed_ = false;
};

}  // namespace accordion::detail
