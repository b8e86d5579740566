// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace accordion {

/// A shard in the dtype of computation, in this rank's place of the buffer that
/// its unit is gathered in ([Note: gathers in place]).
struct CopyInPlace {
  enum class State : std::uint8_t {
    Stale,    ///< the shard may have been written to since
    Current,  ///< for what is left of this pass
    Stepped,  ///< the optimizer wrote both: for the next pass too
  };
  at::Tensor values = {};  ///< [numel_per_rank] gathered dtype
  State state = State::Stale;
};

}  // namespace accordion
