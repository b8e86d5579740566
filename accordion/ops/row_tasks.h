// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>

#include "accordion/ops/element.h"

namespace accordion::ops::detail {

/// Rows cut into tasks, at most one a thread, each of which sums something over
/// its rows: with the tasks' sums added in order, a given number of threads
/// gives the same bits each time.
class RowTasks {
 public:
  RowTasks(int64_t rows, int64_t width)
      : rows_(rows),
        count_(std::clamp<int64_t>(rows / rows_per_task(width), 1,
                                   at::get_num_threads())) {}

  [[nodiscard]] int64_t count() const { return count_; }

  /// Calls `work(task, first row, rows)` for each.
  template <class Work>
  void run(const Work& work) const {
    at::parallel_for(0, count_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = rows_ * task / count_;
        work(task, first, rows_ * (task + 1) / count_ - first);
      }
    });
  }

 private:
  int64_t rows_;
  int64_t count_;
};

}  // namespace accordion::ops::detail
