// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <thread>
#include <vector>

#include "accordion/offload/request.h"

namespace accordion::detail {

inline constexpr int kIoThreads = 4;

/// Requests by pread and pwrite, one at a time on each of kIoThreads threads.
class ThreadIo final : public RequestIo {
 public:
  /// `cached`: the file is read and written through the page cache, which is
  /// made to forget what it holds.
  ThreadIo(int file, bool cached, Finished finished);
  ~ThreadIo() override;

  void start(std::span<const Request> requests) override;

 private:
  void work();
  [[nodiscard]] int carry_out(Request request) const;

  const int file_;
  const bool cached_;
  const Finished finished_;
  RequestQueue queue_;
  std::vector<std::thread> threads_;
};

}  // namespace accordion::detail
