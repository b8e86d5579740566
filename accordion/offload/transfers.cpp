// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/transfers.h"

namespace accordion::detail {
namespace {

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void Transfers::set_num_blocks(std::size_t num_blocks) {
  const std::lock_guard lock(mutex_);
  blocks_.resize(num_blocks);
}

void Transfers::begin(int block, Direction direction, int requests,
                      std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_.at(static_cast<std::size_t>(block)) = {.direction = direction,
                                                 .requests_left = requests,
                                                 .bytes = bytes,
                                                 .begin = Clock::now()};
  (direction == Direction::Read ? traffic_.bytes_read
                                : traffic_.bytes_written) += bytes;
  if (requests_left_ == 0) {
    busy_since_ = Clock::now();
  }
  requests_left_ += requests;
}

void Transfers::finish(const Request& request, int error) {
  {
    const std::lock_guard lock(mutex_);
    TransferState& block = blocks_.at(static_cast<std::size_t>(request.block));
    if (error != 0 && block.error == 0) {
      block.error = error;
      block.error_offset = request.offset;
    }
    --block.requests_left;
    if (--requests_left_ == 0) {
      traffic_.seconds_in_flight += seconds(Clock::now() - busy_since_);
    }
    if (block.requests_left > 0) {
      return;
    }
    log_.add({.is_write = block.direction == Direction::Write,
              .block = request.block,
              .bytes = block.bytes,
              .begin_ns = nanoseconds(block.begin),
              .end_ns = nanoseconds(Clock::now())});
  }
  changed_.notify_all();
}

TransferState Transfers::wait(int block, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const TransferState& state = blocks_.at(static_cast<std::size_t>(block));
  changed_.wait_for(lock, timeout, [&] { return state.requests_left == 0; });
  return state;
}

bool Transfers::in_flight(int block) const {
  const std::lock_guard lock(mutex_);
  return blocks_.at(static_cast<std::size_t>(block)).requests_left > 0;
}

OffloadTraffic Transfers::traffic() const {
  const std::lock_guard lock(mutex_);
  OffloadTraffic traffic = traffic_;
  if (requests_left_ > 0) {
    traffic.seconds_in_flight += seconds(Clock::now() - busy_since_);
  }
  return traffic;
}

}  // namespace accordion::detail
