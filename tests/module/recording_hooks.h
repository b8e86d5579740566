// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "accordion/module/unit_hooks.h"

namespace accordion::testing {

/// Doubles inputs, adds one to outputs, and counts.
struct RecordingHooks : UnitHooks {
  int inputs = -1;
  int outputs = -1;
  int threw = 0;
  void before_forward(std::span<at::Tensor* const> tensors) override {
    inputs = static_cast<int>(tensors.size());
    for (at::Tensor* tensor : tensors) {
      *tensor = *tensor * 2;
    }
  }
  void after_forward(std::span<at::Tensor* const> tensors) override {
    outputs = static_cast<int>(tensors.size());
    for (at::Tensor* tensor : tensors) {
      *tensor = *tensor + 1;
    }
  }
  void forward_threw() noexcept override { ++threw; }
  bool checkpoints() const override { return false; }
  torch::autograd::edge_list recomputed_edges() override { return {}; }
  std::unique_ptr<KeptTensor> keep_argument(
      const at::Tensor& /*argument*/) override {
    return nullptr;
  }
  void before_recompute() override {}
  void after_recompute() noexcept override {}
};

}  // namespace accordion::testing
