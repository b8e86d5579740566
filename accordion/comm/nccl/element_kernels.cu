// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/nccl/element_kernels.h"

#include <algorithm>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace accordion::detail::cuda {

namespace {

constexpr int kThreads = 256;
/// Enough to fill any device; each block takes every kSquareBlocks-th stretch.
constexpr int kMaxBlocks = kSquareBlocks;

int blocks_for(std::int64_t numel) {
  const std::int64_t needed = (numel + kThreads - 1) / kThreads;
  return static_cast<int>(std::min<std::int64_t>(needed, kMaxBlocks));
}

/// What elements are computed in: fp64 for fp64, fp32 for the rest.
template <class A, class B>
using Wide =
    std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double>,
                       double, float>;

template <class To, class From>
__device__ To rounded(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
    return static_cast<To>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<From, __half>) {
    return static_cast<To>(__half2float(value));
  } else {
    return static_cast<To>(value);
  }
}

/// The nearest value that the dtype has.
template <class T>
__device__ T through(T value, DType dtype) {
  switch (dtype) {
    case DType::Bfloat16:
      return rounded<T>(rounded<__nv_bfloat16>(value));
    case DType::Float16:
      return rounded<T>(rounded<__half>(value));
    case DType::Float32:
      return rounded<T>(rounded<float>(value));
    default:
      return value;
  }
}

template <class To, class From>
__global__ void convert_kernel(To* to, const From* from, std::int64_t numel) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < numel; i += step) {
    to[i] = rounded<To>(from[i]);
  }
}

/// The sum over the threads of a block, in a fixed order, on thread 0.
__device__ double sum_of_block(double value) {
  __shared__ double values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      values[threadIdx.x] += values[threadIdx.x + half];
    }
    __syncthreads();
  }
  return values[0];
}

struct Storing {
  double scale;
  DType reduce_dtype;
  bool accumulate;
};

/// `partials` [gridDim.x], or null.
template <class Local, class Sum>
__global__ void store_kernel(Local* local, const Sum* sums, std::int64_t numel,
                             Storing how, double* partials) {
  using Value = Wide<Sum, Sum>;
  double squares = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < numel; i += step) {
    Value value =
        through(rounded<Value>(sums[i]) * static_cast<Value>(how.scale),
                how.reduce_dtype);
    if (how.accumulate) {
      value += rounded<Value>(local[i]);
    }
    const Local stored = rounded<Local>(value);
    local[i] = stored;
    const auto kept = static_cast<double>(rounded<Wide<Local, Local>>(stored));
    squares += kept * kept;
  }
  if (partials != nullptr) {
    squares = sum_of_block(squares);
    if (threadIdx.x == 0) {
      partials[blockIdx.x] = squares;
    }
  }
}

/// One block.
__global__ void sum_partials_kernel(const double* partials, int count,
                                    double* sum) {
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    mine += partials[i];
  }
  mine = sum_of_block(mine);
  if (threadIdx.x == 0) {
    *sum = mine;
  }
}

template <class Integer>
__global__ void store_integers_kernel(Integer* local, const Integer* sums,
                                      std::int64_t numel, bool accumulate) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < numel; i += step) {
    local[i] = accumulate ? local[i] + sums[i] : sums[i];
  }
}

/// Calls `body` with a null pointer to elements of a floating-point dtype.
template <class Body>
cudaError_t with_floating(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::Float32:
      return body(static_cast<float*>(nullptr));
    case DType::Bfloat16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    case DType::Float16:
      return body(static_cast<__half*>(nullptr));
    case DType::Float64:
      return body(static_cast<double*>(nullptr));
    default:
      return cudaErrorInvalidValue;  // check_part lets none through
  }
}

template <class Integer>
cudaError_t store_integers(const void* sums, const ReducePart& part,
                           cudaStream_t stream) {
  store_integers_kernel<<<blocks_for(part.numel), kThreads, 0, stream>>>(
      static_cast<Integer*>(part.local), static_cast<const Integer*>(sums),
      part.numel, part.accumulate);
  return cudaGetLastError();
}

template <class Local, class Sum>
cudaError_t store_floating(const void* sums, const ReducePart& part,
                           double* partials, cudaStream_t stream) {
  const int blocks = blocks_for(part.numel);
  double* const of_blocks = part.sum_of_squares == nullptr ? nullptr : partials;
  store_kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<Local*>(part.local), static_cast<const Sum*>(sums),
      part.numel, Storing{part.scale, part.reduce_dtype, part.accumulate},
      of_blocks);
  if (of_blocks != nullptr) {
    sum_partials_kernel<<<1, kThreads, 0, stream>>>(of_blocks, blocks,
                                                    part.sum_of_squares);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t convert(void* to, DType to_dtype, const void* from,
                    DType from_dtype, std::int64_t numel, cudaStream_t stream) {
  if (numel == 0 || (to == from && to_dtype == from_dtype)) {
    return cudaSuccess;
  }
  if (to_dtype == from_dtype) {
    return cudaMemcpyAsync(
        to, from, static_cast<std::size_t>(numel * element_bytes(to_dtype)),
        cudaMemcpyDefault, stream);
  }
  return with_floating(to_dtype, [&]<class To>(To*) {
    return with_floating(from_dtype, [&]<class From>(From*) {
      convert_kernel<<<blocks_for(numel), kThreads, 0, stream>>>(
          static_cast<To*>(to), static_cast<const From*>(from), numel);
      return cudaGetLastError();
    });
  });
}

cudaError_t store_sums(const void* sums, const ReducePart& part,
                       double* partials, cudaStream_t stream) {
  if (part.numel == 0) {
    return part.sum_of_squares == nullptr
               ? cudaSuccess
               : cudaMemsetAsync(part.sum_of_squares, 0, sizeof(double),
                                 stream);
  }
  if (part.full_dtype == DType::Int64) {
    return store_integers<long long>(sums, part, stream);
  }
  if (part.full_dtype == DType::Int32) {
    return store_integers<int>(sums, part, stream);
  }
  return with_floating(part.full_dtype, [&]<class Sum>(Sum*) {
    return with_floating(part.local_dtype, [&]<class Local>(Local*) {
      return store_floating<Local, Sum>(sums, part, partials, stream);
    });
  });
}

}  // namespace accordion::detail::cuda
