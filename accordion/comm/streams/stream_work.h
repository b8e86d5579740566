// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

#include "accordion/comm/streams/call_watch.h"
#include "accordion/comm/streams/stream_buffer.h"

namespace accordion::detail {

/// A collective that the device was given. Waiting for it is the queue's work.
class StreamWork final : public Work::State {
 public:
  struct Call {
    EventPtr end;
    StreamBuffer* buffer;  // null where it has none
    bool gathers;
    std::string text;
  };
  StreamWork(StreamDevice& device, const CallWatch& watch, Call call)
      : device_(device), watch_(watch), call_(std::move(call)) {}

  void wait() override {
    device_.wait(StreamId::Caller, *call_.end);
    if (call_.buffer != nullptr) {
      call_.buffer->end(call_.gathers);
    }
    watch_.check();
  }
  [[nodiscard]] std::string describe() const override { return call_.text; }

 private:
  StreamDevice& device_;
  const CallWatch& watch_;
  Call call_;
};

}  // namespace accordion::detail
