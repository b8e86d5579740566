// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "accordion/ops/kernels/vectorize.h"

namespace accordion::ops::detail {

/// Whether the loops of kernels/ apply: plain CPU tensors of one dtype, fp32,
/// bf16 or fp16. Everything else takes the composite.
inline bool has_kernel(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return false;
  }
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
        tensor.scalar_type() != dtype) {
      return false;
    }
  }
  return true;
}

/// Calls `body` with a null pointer of the kernels' type for a dtype.
template <class Body>
void dispatch_element(at::ScalarType dtype, Body&& body) {
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

}  // namespace accordion::ops::detail
