// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "accordion/comm/communicator.h"
#include "accordion/comm/streams/stream_device.h"

namespace accordion::detail {

/// A buffer in a device's memory, and what its next user has to wait for.
class StreamBuffer final : public CommBuffer {
 public:
  StreamBuffer(std::shared_ptr<StreamDevice> device, std::int64_t bytes,
               std::string_view label)
      : CommBuffer(device->allocate(bytes, label), bytes),
        device_(std::move(device)),
        free_(device_->record(StreamId::Caller)) {}

  /// What was given to queues may still use the memory.
  ~StreamBuffer() override {
    device_->block_until(*free_);
    if (last_) {
      device_->block_until(*last_);
    }
    device_->free(data_);
  }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  enum class Use {
    None,
    InFlight,  ///< a Work not waited for
    Gathered,  ///< and not released
  };
  [[nodiscard]] Use use() const { return use_; }

  void begin(EventPtr end_of_collective) {
    last_ = std::move(end_of_collective);
    use_ = Use::InFlight;
  }
  void end(bool gathered) { use_ = gathered ? Use::Gathered : Use::None; }
  /// The caller's queue has been given the last that reads the buffer.
  void release() {
    free_ = device_->record(StreamId::Caller);
    use_ = Use::None;
  }

  /// After it the buffer may be written to by a gather.
  [[nodiscard]] const StreamEvent& free() const { return *free_; }
  /// The end of the last collective; null before the first.
  [[nodiscard]] const EventPtr& last() const { return last_; }

 private:
  std::shared_ptr<StreamDevice> device_;
  EventPtr free_;
  EventPtr last_;
  Use use_ = Use::None;
};

}  // namespace accordion::detail
