// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "accordion/comm/communicator.h"
#include "accordion/comm/dtype.h"

// What collectives do to elements on a CUDA device, as comm/elements.h has it
// for the host. All of it is given to `stream`; what is returned is whether
// that went well.
namespace accordion::detail::cuda {

/// Blocks of a sum of squares, each of which leaves one partial sum.
inline constexpr int kSquareBlocks = 512;

/// As detail::convert, for ranges that are the same or apart.
cudaError_t convert(void* to, DType to_dtype, const void* from,
                    DType from_dtype, std::int64_t numel, cudaStream_t stream);

/// Stores `sums` [part.numel] of part.full_dtype to part.local as ReducePart
/// says. Partial sums of squares, fp64 and in an order that depends on numel
/// alone, go to `partials` [kSquareBlocks] first: results repeat bit for bit.
cudaError_t store_sums(const void* sums, const ReducePart& part,
                       double* partials, cudaStream_t stream);

}  // namespace accordion::detail::cuda
