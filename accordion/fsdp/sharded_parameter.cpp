// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/sharded_parameter.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace accordion {

namespace {

/// As set_data does, without what it checks: that both are plain tensors, and
/// what its gradients are accumulated by, which follows. Each unit does this
/// for each parameter four times in a step.
void show(const at::Tensor& tensor, const at::Tensor& face) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(face.getIntrusivePtr());
}

}  // namespace

ShardedParameter::ShardedParameter(std::string name,
                                   std::vector<Source> sources, Piece piece,
                                   Faces faces)
    : name_(std::move(name)),
      piece_(std::move(piece)),
      faces_(std::move(faces)) {
  for (Source& source : sources) {
    shown_.push_back(
        {.tensor = std::move(source.tensor), .source = source.number});
  }
}

std::vector<at::Tensor> ShardedParameter::tensors() const {
  std::vector<at::Tensor> result;
  for (const Shown& shown : shown_) {
    result.push_back(shown.tensor);
  }
  return result;
}

std::vector<ShardedParameter::Sink> ShardedParameter::sinks() const {
  std::vector<Sink> result;
  for (const Shown& shown : shown_) {
    if (shown.sink) {
      result.push_back({shown.source, &*shown.sink});
    }
  }
  return result;
}

bool ShardedParameter::wants_gradient() const {
  const bool wants = tensor().requires_grad();
  for (const Shown& shown : shown_) {
    TORCH_CHECK_VALUE(shown.tensor.requires_grad() == wants,
                      "[fully_shard] parameter '", name_,
                      "' is tied to another tensor, and only one of them "
                      "requires grad. Freeze both or none.");
  }
  return wants;
}

void ShardedParameter::show_sharded(
    const std::weak_ptr<GradientReceiver>& receiver) {
  for (Shown& shown : shown_) {
    show(shown.tensor, faces_.piece_data);
    if (!requires_grad()) {
      continue;
    }
    if (!shown.guard) {
      shown.guard = make_gradient_guard(shown.tensor, shown.source, receiver);
    }
    set_gradient_node(shown.tensor, shown.guard);
  }
}

void ShardedParameter::show_unsharded(
    const std::weak_ptr<GradientReceiver>& receiver) {
  for (Shown& shown : shown_) {
    show(shown.tensor, faces_.unsharded);
    if (!requires_grad()) {
      continue;
    }
    if (!shown.sink) {
      shown.sink = make_gradient_sink(shown.tensor, shown.source, receiver);
    }
    set_gradient_node(shown.tensor, shown.sink);
  }
}

void ShardedParameter::show_whole(
    Whole whole, const std::weak_ptr<GradientReceiver>& receiver) {
  whole_ = std::move(whole);
  if (requires_grad()) {
    had_gradient_ = tensor().grad().defined();
    tensor().mutable_grad() = at::Tensor();
  }
  for (Shown& shown : shown_) {
    show(shown.tensor, whole_.data);
    if (requires_grad()) {
      shown.whole_guard =
          make_gradient_guard(shown.tensor, shown.source, receiver);
      set_gradient_node(shown.tensor, shown.whole_guard);
    }
  }
  if (had_gradient_) {
    tensor().mutable_grad() = whole_.gradient;
  }
}

void ShardedParameter::collect_whole() {
  for (const Shown& shown : shown_) {
    collect(shown.tensor.detach(), whole_.data, "parameter");
  }
  if (!had_gradient_ || !whole_.gradient.defined()) {
    return;
  }
  if (tensor().grad().defined()) {
    collect(tensor().grad(), whole_.gradient, "gradient of parameter");
  } else {
    whole_.gradient.zero_();
  }
}

void ShardedParameter::collect(const at::Tensor& assigned,
                               const at::Tensor& shown,
                               const char* what) const {
  if (shown.numel() == 0 ||
      assigned.const_data_ptr() == shown.const_data_ptr()) {
    return;
  }
  TORCH_CHECK_VALUE(assigned.sizes() == shown.sizes() &&
                        assigned.scalar_type() == shown.scalar_type(),
                    "[SummonFullParameters] the ", what, " '", name_, "' ",
                    shown.sizes(), " of ", shown.scalar_type(),
                    " was replaced by a tensor ", assigned.sizes(), " of ",
                    assigned.scalar_type(),
                    ", which is dropped. Keep shape and dtype.");
  shown.copy_(assigned);
}

void ShardedParameter::hide_whole() {
  if (whole_.data.defined() && requires_grad()) {
    tensor().mutable_grad() =
        had_gradient_ ? faces_.piece_gradient : at::Tensor();
  }
  whole_ = Whole();
  had_gradient_ = false;
  for (Shown& shown : shown_) {
    shown.whole_guard = NodePtr();
  }
}

bool ShardedParameter::has_assignment() const {
  return !std::all_of(shown_.begin(), shown_.end(), [this](const Shown& shown) {
    return shows_piece(shown.tensor);
  });
}

bool ShardedParameter::shows_piece(const at::Tensor& tensor) const {
  const at::Tensor& piece = faces_.piece_data;
  return tensor.sizes() == piece.sizes() &&
         tensor.scalar_type() == piece.scalar_type() &&
         (piece.numel() == 0 ||
          tensor.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl() ==
              piece.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl());
}

bool ShardedParameter::adopt_assignment() {
  bool any = false;
  for (const Shown& shown : shown_) {
    any |= adopt(shown.tensor);
  }
  return any;
}

bool ShardedParameter::adopt(const at::Tensor& tensor) {
  if (shows_piece(tensor)) {
    return false;
  }
  const at::Tensor& piece = faces_.piece_data;
  const bool same_dtype = tensor.scalar_type() == piece.scalar_type();
  const at::NoGradGuard no_grad;
  if (same_dtype && tensor.sizes() == piece.sizes()) {
    piece.copy_(tensor.detach());
  } else {
    TORCH_CHECK_VALUE(same_dtype && tensor.sizes() == faces_.unsharded.sizes(),
                      "[fully_shard] parameter '", name_,
                      "' was replaced after sharding by a tensor ",
                      tensor.sizes(), " of ", tensor.scalar_type(),
                      "; this rank's piece is ", piece.sizes(),
                      " and the whole ", faces_.unsharded.sizes(), ", of ",
                      piece.scalar_type(),
                      ". Assign one of these shapes, or write to the pieces of "
                      "accordion::local_parameters(net).");
    piece.view({-1}).copy_(
        tensor.detach().reshape({-1}).slice(0, piece_.begin, piece_.end));
  }
  tensor.set_data(piece);
  return true;
}

void ShardedParameter::publish_gradient() {
  tensor().mutable_grad() = faces_.piece_gradient;
}

void ShardedParameter::withdraw_gradient() {
  tensor().mutable_grad() = at::Tensor();
}

bool ShardedParameter::adopt_gradient() {
  const at::Tensor& gradient = tensor().grad();
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
