// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/nonfinite_output.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <ATen/ops/isfinite.h>

#include "accordion/comm/gather_values.h"
#include "accordion/fsdp/fsdp_state.h"

namespace accordion {

namespace {

bool is_finite(const at::Tensor& tensor) {
  return !tensor.is_floating_point() ||
         at::isfinite(tensor.detach()).all().item<bool>();
}

/// Watches outputs while it lives.
class Watch {
 public:
  Watch(Executor& executor, Executor::OutputWatch watch) : executor_(executor) {
    executor_.set_output_watch(std::move(watch));
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { executor_.set_output_watch({}); }

 private:
  Executor& executor_;
};

}  // namespace

std::optional<NonfiniteOutput> first_nonfinite_output(
    const torch::nn::Module& root, const std::function<void()>& forward) {
  struct Found {
    std::int32_t call = std::numeric_limits<std::int32_t>::max();
    std::int32_t unit = 0;
  };
  FsdpState& state = sharded_state(root, "first_nonfinite_output");
  Found mine;
  {
    std::int32_t call = 0;
    const Watch watch(
        *state.executor, [&](int unit, std::span<at::Tensor* const> outputs) {
          const bool finite = std::ranges::all_of(
              outputs,
              [](const at::Tensor* output) { return is_finite(*output); });
          if (!finite) {
            mine.call = std::min(mine.call, call);
            mine.unit = mine.call == call ? unit : mine.unit;
          }
          ++call;
        });
    forward();
  }
  const auto all =
      gather_values(state.mesh.world(), mine, "first_nonfinite_output");
  const auto first = std::ranges::min_element(all, {}, &Found::call);
  if (first->call == Found().call) {
    return std::nullopt;
  }
  return NonfiniteOutput{
      .unit = state.executor->units()[static_cast<std::size_t>(first->unit)]
                  ->name(),
      .rank = static_cast<int>(first - all.begin())};
}

}  // namespace accordion
