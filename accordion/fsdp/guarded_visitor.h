// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

namespace accordion::detail {

/// Calls a visitor of named tensors until it throws, and keeps what it threw:
/// other ranks count on the collectives that follow.
class GuardedVisitor {
 public:
  using Visit =
      std::function<void(const std::string& name, const at::Tensor& tensor)>;

  /// `visit` outlives it.
  explicit GuardedVisitor(const Visit& visit) : visit_(visit) {}

  void operator()(const std::string& name, const at::Tensor& tensor) {
    if (error_) {
      return;
    }
    try {
      visit_(name, tensor);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  const Visit& visit_;
  std::exception_ptr error_;
};

}  // namespace accordion::detail
