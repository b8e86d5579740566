// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion::testing {

/// What an error says, without LibTorch's backtrace.
inline std::string message_of_error(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find("\nException raised from"));
}

/// Runs `body` on `world_size` threads, each a rank of one mesh. An exception
/// of one is a failure of the test that names the rank.
inline void on_ranks(
    int world_size, const std::function<void(const DeviceMesh&)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  auto group = make_local_shm_group(world_size, timeout);
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const auto r = static_cast<std::size_t>(rank);
      try {
        body(DeviceMesh::over(
            std::shared_ptr<Communicator>(std::move(group[r]))));
      } catch (const std::exception& error) {
        errors[r] = message_of_error(error);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int rank = 0; rank < world_size; ++rank) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "")
        << "rank " << rank << " of " << world_size;
  }
}

/// The message of the Error that `f` throws.
template <class Error, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return message_of_error(error);
  }
  return "nothing was thrown";
}

}  // namespace accordion::testing
