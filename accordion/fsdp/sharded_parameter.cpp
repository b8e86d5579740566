// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/sharded_parameter.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "accordion/module/materialize.h"

namespace accordion {

ShardedParameter::ShardedParameter(std::string name, at::Tensor tensor,
                                   Piece piece, Faces faces)
    : name_(std::move(name)),
      tensor_(std::move(tensor)),
      piece_(std::move(piece)),
      faces_(std::move(faces)) {}

void ShardedParameter::show_sharded(
    int index, const std::weak_ptr<GradientReceiver>& receiver) {
  assign_data(tensor_, faces_.piece_data);
  if (!requires_grad()) {
    return;
  }
  if (!guard_) {
    guard_ = make_gradient_guard(tensor_, index, receiver);
  }
  set_gradient_node(tensor_, guard_);
}

void ShardedParameter::show_unsharded(
    int index, const std::weak_ptr<GradientReceiver>& receiver) {
  assign_data(tensor_, faces_.unsharded);
  if (!requires_grad()) {
    return;
  }
  if (!sink_) {
    sink_ = make_gradient_sink(tensor_, index, receiver);
  }
  set_gradient_node(tensor_, sink_);
}

void ShardedParameter::adopt_assignment() {
  const at::Tensor& piece = faces_.piece_data;
  const bool same_shape = tensor_.sizes() == piece.sizes();
  const bool same_dtype = tensor_.scalar_type() == piece.scalar_type();
  if (same_shape && same_dtype &&
      (piece.numel() == 0 ||
       tensor_.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl() ==
           piece.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl())) {
    return;
  }
  const at::NoGradGuard no_grad;
  if (same_shape && same_dtype) {
    piece.copy_(tensor_.detach());
  } else {
    TORCH_CHECK_VALUE(same_dtype && tensor_.sizes() == faces_.unsharded.sizes(),
                      "[fully_shard] parameter '", name_,
                      "' was replaced after sharding by a tensor ",
                      tensor_.sizes(), " of ", tensor_.scalar_type(),
                      "; this rank's piece is ", piece.sizes(),
                      " and the whole ", faces_.unsharded.sizes(), ", of ",
                      piece.scalar_type(),
                      ". Assign one of these shapes, or write to the pieces of "
                      "accordion::local_parameters(net).");
    piece.view({-1}).copy_(
        tensor_.detach().reshape({-1}).slice(0, piece_.begin, piece_.end));
  }
  tensor_.set_data(piece);
}

void ShardedParameter::publish_gradient() {
  tensor_.mutable_grad() = faces_.piece_gradient;
}

bool ShardedParameter::adopt_gradient() {
  const at::Tensor& gradient = tensor_.grad();
  if (!gradient.defined()) {
    return false;
  }
  const at::Tensor& ours = faces_.piece_gradient;
  if (!gradient.is_same(ours)) {
    TORCH_CHECK_VALUE(gradient.sizes() == ours.sizes(),
                      "[fully_shard] '.grad()' of parameter '", name_,
                      "' was replaced by a tensor ", gradient.sizes(),
                      "; the gradient of this rank's piece is ", ours.sizes(),
                      ". Reset it with zero_grad().");
    const at::NoGradGuard no_grad;
    ours.copy_(gradient);
  }
  return true;
}

}  // namespace accordion
