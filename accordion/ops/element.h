// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <optional>

#include <ATen/core/Tensor.h>

#include "accordion/ops/kernels/vectorize.h"

namespace accordion::ops::detail {

/// Whether the loops of kernels/ apply: plain CPU tensors of one dtype, fp32,
/// bf16 or fp16. Everything else takes the composite.
///
/// // [Note: operators on meta]
/// Tensors on meta pass for such: an operator then makes, saves and returns
/// the tensors that it does on the CPU, and leaves the loops out. So what a
/// step holds can be counted without its memory.
inline bool has_kernel(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  const at::Device device = tensors.begin()->device();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return false;
  }
  if (!device.is_cpu() && !device.is_meta()) {
    return false;
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != device || tensor.layout() != at::kStrided ||
        tensor.scalar_type() != dtype) {
      return false;
    }
  }
  return true;
}

/// Calls `body` with a null pointer of the kernels' type for the dtype of
/// `tensor`; not at all where that has no elements to compute ([Note: operators
/// on meta]).
template <class Body>
void dispatch_element(const at::Tensor& tensor, Body&& body) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (tensor.is_meta()) {
    return;
  }
  if (dtype == at::kFloat) {
    body(static_cast<float*>(nullptr));
  } else if (dtype == at::kBFloat16) {
    body(static_cast<kernels::Bf16*>(nullptr));
  } else {
    TORCH_INTERNAL_ASSERT(dtype == at::kHalf);
    body(static_cast<kernels::Fp16*>(nullptr));
  }
}

template <class T>
const T* read(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <class T>
T* write(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

/// Rows that make a task worth handing to a thread.
inline int64_t rows_per_task(int64_t row_numel) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_numel));
}

/// How LibTorch's own operators take an argument that may be missing.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace accordion::ops::detail
