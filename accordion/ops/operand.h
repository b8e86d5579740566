// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace accordion::ops {

/// How results of a cheap operator are computed again in backward: once, for
/// all that asks for them there.
///
/// Threads  that of a backward
class Recomputation : public torch::CustomClassHolder {
 public:
  using Compute =
      std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  explicit Recomputation(Compute compute) : compute_(std::move(compute)) {}

  /// A node of the graph will ask for results, once each backward.
  void add_user() { ++users_; }
  /// The results from what they were computed from. Kept until as many nodes
  /// have asked as there are, or the graph is freed.
  std::vector<at::Tensor> results(const std::vector<at::Tensor>& from);

 private:
  Compute compute_;
  int users_ = 0;
  int still_to_ask_ = 0;
  std::vector<at::Tensor> results_;
};

/// A tensor that a product needs again in backward: kept, or computed again
/// from tensors that are kept anyway.
///
/// // [Note: selective recomputation]
/// Between the products of a layer lie norms, activations and attention, whose
/// results are as large as those of the products and cost a hundredth of them.
/// The products keep what those were computed from, which the operators'
/// own backwards keep too, in place of their results. Backward computes these
/// again, with the same kernels, so to the same bits.
class Operand {
 public:
  /// Kept.
  Operand(at::Tensor value) : value_(std::move(value)) {}  // NOLINT: as it is
  /// The first of the results that `recomputation` finds for `from`, in
  /// whatever shape.
  Operand(at::Tensor value, std::vector<at::Tensor> from,
          c10::intrusive_ptr<Recomputation> recomputation)
      : value_(std::move(value)),
        from_(std::move(from)),
        recomputation_(std::move(recomputation)) {}

  [[nodiscard]] const at::Tensor& value() const { return value_; }
  [[nodiscard]] bool is_kept() const { return recomputation_ == nullptr; }
  [[nodiscard]] const std::vector<at::Tensor>& from() const { return from_; }
  [[nodiscard]] const c10::intrusive_ptr<Recomputation>& recomputation() const {
    return recomputation_;
  }

 private:
  at::Tensor value_;
  std::vector<at::Tensor> from_;
  c10::intrusive_ptr<Recomputation> recomputation_;
};

}  // namespace accordion::ops
