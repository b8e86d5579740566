// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/local_meshes.h"

namespace accordion::testing {

/// What an error says, without LibTorch's backtrace.
inline std::string message_of_error(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find("\nException raised from"));
}

/// Runs `body` on a thread for each mesh. An exception of one is a failure of
/// the test that names the rank.
inline void on_meshes(std::vector<DeviceMesh> meshes,
                      const std::function<void(const DeviceMesh&)>& body) {
  std::vector<std::string> errors(meshes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < meshes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        // Gone at the end of this thread, so that peers do not wait for it.
        const DeviceMesh mesh = std::move(meshes[rank]);
        body(mesh);
      } catch (const std::exception& error) {
        errors[rank] = message_of_error(error);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank], "") << "rank " << rank << " of " << errors.size();
  }
}

/// The same on threads that are the ranks of a mesh of one axis.
inline void on_ranks(
    int world_size, const std::function<void(const DeviceMesh&)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  on_meshes(make_local_meshes({{"shard", world_size}}, timeout), body);
}

/// The mean of the ranks' numbers.
inline double mean_over_ranks(const DeviceMesh& mesh, double value) {
  const ReducePart part{.full = &value,
                        .full_dtype = DType::Float64,
                        .local = &value,
                        .local_dtype = DType::Float64,
                        .reduce_dtype = DType::Float64,
                        .numel = 1,
                        .scale = 1.0 / mesh.world_size()};
  mesh.world().all_reduce({&part, 1}, nullptr, "loss").wait();
  return value;
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
