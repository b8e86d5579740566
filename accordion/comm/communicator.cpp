// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/communicator.h"

#include <cstdio>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/private_buffer.h"

namespace accordion {

std::string_view name(CommOp op) {
  switch (op) {
    case CommOp::AllGather:
      return "all_gather";
    case CommOp::ReduceScatter:
      return "reduce_scatter";
    case CommOp::AllReduce:
      return "all_reduce";
    case CommOp::Broadcast:
      return "broadcast";
    case CommOp::Barrier:
      return "barrier";
    case CommOp::Allocate:
      return "allocate";
  }
  throw std::logic_error("[comm] operation outside the enumeration");
}

void Communicator::abandon(std::string_view) {}

std::unique_ptr<CommBuffer> Communicator::allocate_private(
    std::int64_t bytes, std::string_view label) const {
  return detail::make_private_buffer(bytes, label);
}

std::unique_ptr<Communicator> Communicator::make_lone() const {
  return make_lone_communicator("none", timeout());
}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    Work dropped(std::move(state_));
    state_ = std::move(other.state_);
  }
  return *this;
}

Work::~Work() {
  if (!state_) {
    return;
  }
  std::fprintf(stderr, "[comm] nobody waited for %s; waiting now\n",
               state_->describe().c_str());
  try {
    wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

void Work::wait() {
  if (const std::unique_ptr<State> state = std::move(state_)) {
    state->wait();
  }
}

}  // namespace accordion
