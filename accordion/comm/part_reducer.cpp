// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/part_reducer.h"

#include <array>

namespace accordion::detail {

void PartReducer::add(std::span<const void* const> sources,
                      std::int64_t numel) {
  reduce(sources, part_.full_dtype, next_target(part_.scale), numel);
  done_ += numel;
}

void PartReducer::add_sums(const void* sums, DType dtype, std::int64_t numel) {
  const ReduceTarget target = next_target(1.0);
  if (target.local == sums) {
    // In place already. Peers may be reading: nothing is written, not even what
    // is there.
    if (target.squares != nullptr) {
      target.squares->add(sums, dtype, numel);
    }
  } else if (target.accumulate || target.squares != nullptr) {
    reduce(std::array{sums}, dtype, target, numel);
  } else if (past_cache_) {
    convert_past_cache(target.local, target.local_dtype, sums, dtype, numel);
  } else {
    convert(target.local, target.local_dtype, sums, dtype, numel);
  }
  done_ += numel;
}

ReduceTarget PartReducer::next_target(double scale) {
  return {offset(part_.local, part_.local_dtype, done_),
          part_.local_dtype,
          part_.reduce_dtype,
          scale,
          part_.accumulate,
          part_.sum_of_squares == nullptr ? nullptr : &squares_,
          past_cache_};
}

void PartReducer::finish() const {
  if (part_.sum_of_squares != nullptr) {
    *part_.sum_of_squares = squares_.total();
  }
}

void reduce(std::span<const void* const> sources, const ReducePart& part,
            bool past_cache) {
  PartReducer reducer(part, past_cache);
  reducer.add(sources, part.numel);
  reducer.finish();
}

}  // namespace accordion::detail
