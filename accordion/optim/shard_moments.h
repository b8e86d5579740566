// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace accordion {

/// Both moments of elements [begin, end) of a shard.
struct MomentStretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  at::Tensor first = {};   ///< [end - begin]
  at::Tensor second = {};  ///< [end - begin]
};

/// The moments of one shard, wherever they are kept: zeros at first.
///
/// Threads  one at a time
class ShardMoments {
 public:
  virtual ~ShardMoments() = default;

  /// Calls `update` with stretches that together are the whole shard, in order;
  /// what it writes to them is kept.
  virtual void visit(
      const std::function<void(const MomentStretch& stretch)>& update) = 0;

  /// All of them, to be read or written between steps. The next visit() ends
  /// the use of the tensors.
  virtual MomentStretch whole() = 0;
};

/// In memory: one stretch.
///
/// Memory  2 * numel elements
std::unique_ptr<ShardMoments> make_resident_moments(std::int64_t numel,
                                                    at::TensorOptions options);

}  // namespace accordion
