// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "accordion/comm/gloo/gloo_declarations.h"
#include "accordion/comm/gloo/gloo_store.h"

// After the declarations, which it needs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace accordion {

struct GlooStore::State {
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout;
  /// Makes what Gloo listens with.
  std::function<std::shared_ptr<::gloo::transport::Device>()> device;
  std::string place;  ///< that of `device`, for messages
};

/// What an error of c10d says, without the addresses of its call stack.
[[nodiscard]] std::string first_line(const std::exception& error);

}  // namespace accordion
