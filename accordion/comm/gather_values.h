// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// `mine` of every rank, in the order of ranks. For small values; all ranks
/// pass the same type.
///
/// Comm    one all-gather of sizeof(T) bytes a rank, named `label`
/// Throws  CommError
template <class T>
std::vector<T> gather_values(Communicator& communicator, const T& mine,
                             std::string_view label) {
  static_assert(std::is_trivially_copyable_v<T> &&
                sizeof(T) % sizeof(std::int32_t) == 0);
  std::vector<T> all(static_cast<std::size_t>(communicator.world_size()));
  const GatherPart part{.local = &mine,
                        .local_dtype = DType::Int32,
                        .full = all.data(),
                        .full_dtype = DType::Int32,
                        .numel = sizeof(T) / sizeof(std::int32_t)};
  communicator.all_gather_into({&part, 1}, nullptr, label).wait();
  return all;
}

}  // namespace accordion
