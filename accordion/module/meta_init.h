// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion {

/// While one lives, tensors that this thread makes without naming a device are
/// on the meta device: shapes and dtypes without memory, values or random
/// numbers drawn. A module of any size is built in no time, then given values
/// piece by piece (materialize, or fully_shard).
///
///     const auto net = [] {
///       const accordion::MetaInit meta;
///       return accordion::Unit<Net>(config);
///     }();
///
/// What a constructor makes while a MetaInit lives, and what becomes of it:
///
///   empty, zeros, ones, full, rand, randn, arange, eye, linspace, …
///                           on meta; the generator is not touched
///   what operators make of those (tril, sin, t, …)         on meta
///   a device named: torch::zeros(3, torch::kCPU)           where it says
///   torch::tensor of values, from_blob, from_file, randperm, tril_indices,
///   triu_indices, clone of a loaded tensor
///                           on the CPU with its values, which are kept; where
///                           an operator mixes it with meta, the result is meta
///   item(), data_ptr(), at::tensor, printing, copying a meta tensor to the
///   CPU, operators without a meta kernel (where, complex)
///                           an error: the value does not exist
///
/// A small table that a constructor must compute for real stands in a scope of
/// its own with a RealInit. Tables on meta are filled by rebuild_buffers.
///
/// Guards nest and end with their scope, exceptions included. Other threads do
/// not notice, nor do threads that a constructor starts.
///
/// Threads  of one thread: made and destroyed on the same
/// Source   upstream torch.device("meta") as a context manager
class [[nodiscard]] MetaInit {
 public:
  MetaInit();
  ~MetaInit();
  MetaInit(const MetaInit&) = delete;
  MetaInit& operator=(const MetaInit&) = delete;

 private:
  bool was_on_;
};

/// While one lives, a MetaInit around it has no effect on this thread.
class [[nodiscard]] RealInit {
 public:
  RealInit();
  ~RealInit();
  RealInit(const RealInit&) = delete;
  RealInit& operator=(const RealInit&) = delete;

 private:
  bool was_on_;
};

}  // namespace accordion
