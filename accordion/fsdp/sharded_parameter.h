// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

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

  /// A tensor of the module, and the number under which its gradients arrive.
  struct Source {
    at::Tensor tensor = {};
    int number = 0;
  };

  /// The tensors that are this parameter. The first is the one whose `.grad()`
  /// is the gradient, so that an optimizer that was given several steps once.
  ShardedParameter(std::string name, std::vector<Source> sources, Piece piece,
                   Faces faces);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const at::Tensor& tensor() const {
    return shown_.front().tensor;
  }
  [[nodiscard]] std::vector<at::Tensor> tensors() const;
  [[nodiscard]] bool is_tied() const { return shown_.size() > 1; }
  /// The nodes that deliver its gradients, by number of their source.
  struct Sink {
    int source = 0;
    const torch::autograd::Node* node = nullptr;
  };
  [[nodiscard]] std::vector<Sink> sinks() const;
  /// Whether its tensors require grad, which may differ from requires_grad()
  /// until the next pass. Throws c10::ValueError where they disagree.
  [[nodiscard]] bool wants_gradient() const;
  [[nodiscard]] const Piece& piece() const { return piece_; }
  [[nodiscard]] const Faces& faces() const { return faces_; }
  [[nodiscard]] bool requires_grad() const {
    return faces_.piece_gradient.defined();
  }

  /// The gradient of the piece from now on; undefined when frozen.
  void set_piece_gradient(at::Tensor gradient) {
    faces_.piece_gradient = std::move(gradient);
  }

  void show_sharded(const std::weak_ptr<GradientReceiver>& receiver);
  void show_unsharded(const std::weak_ptr<GradientReceiver>& receiver);

  /// What a guard shows in place of pieces: both in the global shape.
  struct Whole {
    at::Tensor data = {};
    at::Tensor gradient = {};
  };
  /// Shows `whole.data`, and `whole.gradient` where there is a `.grad()` now.
  /// Gradients that autograd computes are refused.
  void show_whole(Whole whole, const std::weak_ptr<GradientReceiver>& receiver);
  /// Copies what was assigned meanwhile to what is shown.
  ///
  /// Throws  c10::ValueError for another shape or dtype
  void collect_whole();
  /// Forgets it, and restores `.grad()` of the piece, if show_whole was called.
  /// The face is shown by one of the functions above.
  void hide_whole();

  /// Whether the user assigned something else to the module's tensor.
  ///
  /// Requires  the sharded face is shown
  [[nodiscard]] bool has_assignment() const;
  /// Brings assignments of the user's to the module's tensor home: a tensor of
  /// the piece's shape is copied to the piece, one of the global shape is cut.
  ///
  /// Returns whether there was one.
  ///
  /// Requires  the sharded face is shown
  /// Throws    c10::ValueError for any other shape or dtype
  bool adopt_assignment();

  /// Makes `.grad()` the piece's gradient. What the user had put there instead
  /// was dropped or adopted by adopt_gradient before.
  void publish_gradient();
  /// Makes `.grad()` undefined.
  void withdraw_gradient();

  /// Whether `.grad()` holds something to add the next reduction to; a tensor
  /// of the user's is copied to the piece's gradient first.
  [[nodiscard]] bool adopt_gradient();

 private:
  [[nodiscard]] bool shows_piece(const at::Tensor& tensor) const;
  /// One of the module's tensors.
  struct Shown {
    at::Tensor tensor = {};  // [local_shape] or [global shape]
    int source = 0;
    NodePtr sink = {};         // made when first unsharded
    NodePtr guard = {};        // made when first sharded
    NodePtr whole_guard = {};  // while a guard shows it whole
  };
  bool adopt(const at::Tensor& tensor);
  void collect(const at::Tensor& assigned, const at::Tensor& shown,
               const char* what) const;

  std::string name_;
  std::vector<Shown> shown_;
  Piece piece_;
  Faces faces_;
  Whole whole_;  // undefined while no guard shows it
  bool had_gradient_ = false;
};

}  // namespace accordion
