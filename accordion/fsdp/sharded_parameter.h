// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/gradient_sink.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {

/// One parameter of a unit: the tensor that the module and the optimizer hold,
/// and the two things that it can be.
///
/// // [Note: one tensor, two faces]
/// The module's TensorImpl is never replaced. set_data gives it the sharded
/// face (this rank's piece, a view of the unit's shard) or the unsharded face
/// (a view of the unit's unsharded storage). An optimizer made before sharding
/// keeps working, and `.grad()` is the gradient of the piece at all times.
class ShardedParameter {
 public:
  /// `piece_data` [local_shape] and `piece_gradient` [local_shape] lie in the
  /// unit's flat shard and flat gradient (undefined when frozen); `unsharded`
  /// [global shape] in its unsharded storage.
  struct Faces {
    at::Tensor piece_data = {};
    at::Tensor piece_gradient = {};
    at::Tensor unsharded = {};
  };

  ShardedParameter(std::string name, at::Tensor tensor, Piece piece,
                   Faces faces);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }
  [[nodiscard]] const Piece& piece() const { return piece_; }
  [[nodiscard]] const Faces& faces() const { return faces_; }
  [[nodiscard]] bool requires_grad() const {
    return faces_.piece_gradient.defined();
  }

  /// The gradient of the piece from now on; undefined when frozen.
  void set_piece_gradient(at::Tensor gradient) {
    faces_.piece_gradient = std::move(gradient);
  }

  void show_sharded(int index, const std::weak_ptr<GradientReceiver>& receiver);
  void show_unsharded(int index,
                      const std::weak_ptr<GradientReceiver>& receiver);

  /// Brings assignments of the user's to the module's tensor home: a tensor of
  /// the piece's shape is copied to the piece, one of the global shape is cut.
  ///
  /// Requires  the sharded face is shown
  /// Throws    c10::ValueError for any other shape or dtype
  void adopt_assignment();

  /// Makes `.grad()` the piece's gradient. What the user had put there instead
  /// was dropped or adopted by adopt_gradient before.
  void publish_gradient();

  /// Whether `.grad()` holds something to add the next reduction to; a tensor
  /// of the user's is copied to the piece's gradient first.
  [[nodiscard]] bool adopt_gradient();

 private:
  std::string name_;
  at::Tensor tensor_;  // [local_shape] or [global shape]
  Piece piece_;
  Faces faces_;
  NodePtr sink_;   // made when first unsharded
  NodePtr guard_;  // made when first sharded
};

}  // namespace accordion
