// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two units that note what they compute with, and threads that tell each other
// how far they are.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"

namespace accordion::testing {

/// What one thread tells another.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  /// Waits for it, but not for long: whoever is to set it may be waiting for
  /// this thread.
  bool wait_a_while() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(200),
                             [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

/// A unit that takes its time over its weight, and notes whether that changed.
struct WatchedImpl : torch::nn::Module {
  WatchedImpl() { weight = register_parameter("weight", torch::ones({64, 3})); }
  torch::Tensor forward(torch::Tensor x) {
    if (in_forward) {
      look();
    }
    torch::Tensor y = x * 2;
    if (in_backward && y.requires_grad()) {
      y.register_hook([this](const torch::Tensor& gradient) {
        look();
        return gradient;
      });
    }
    return y * weight.mean();
  }
  void look() {
    const torch::NoGradGuard no_grad;
    seen = weight.clone();
    if (pause) {
      pause();
    }
    changed |= !torch::equal(weight, seen);
  }

  torch::Tensor weight;  // [64, 3]
  torch::Tensor seen;    // the same
  std::function<void()> pause;
  bool in_forward = false;
  bool in_backward = false;
  bool changed = false;
};
TORCH_MODULE(Watched);

struct ChainImpl : torch::nn::Module {
  ChainImpl() {
    first = register_module("first", Unit<Watched>());
    second = register_module("second", Unit<Watched>());
  }
  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    if (between) {
      between();
    }
    x = second(x);
    return between ? first(x) : x;
  }
  Unit<Watched> first{nullptr}, second{nullptr};
  std::function<void()> between;  // and first once more, behind second
};
TORCH_MODULE(Chain);

using ChainNet = Unit<Chain>;

inline torch::Tensor chain_input() {
  return torch::ones({2, 3}).requires_grad_();
}

inline void train_chain(ChainNet& net, bool is_last = true) {
  set_is_last_backward(*net, is_last);
  net(chain_input()).sum().backward();
}

inline torch::Tensor piece_named(const ChainNet& net, const std::string& name) {
  for (const LocalParameter& local : local_parameters(*net)) {
    if (local.name == name) {
      return local.piece;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

}  // namespace accordion::testing
