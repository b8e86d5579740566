// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/allocation.h"

#include <string>

namespace accordion::detail {

std::vector<std::shared_ptr<Mapping>> map_segments(
    ShmContext& context, const SegmentRequest& request) {
  Control& control = context.control;
  Wait wait{posted(CommOp::Allocate), request.number,
            CommOp::Allocate,         request.label,
            request.number,           "for every rank to call it"};
  control.wait(wait, context.progress);
  control.check_same_call(CommOp::Allocate, request.number);
  wait.purpose = "for every rank to allocate";
  const auto step = [&](auto&& action) {
    std::string outcome;
    try {
      action();
    } catch (const CommError& error) {
      outcome = error.what();
    }
    control.agree(outcome, wait);
  };
  // Rank 0 answers for the memory of all: one by one each might fit.
  const std::int64_t segments = request.one_per_rank ? context.world_size : 1;
  step([&] {
    check_memory_limits(context.rank == 0 ? segments * request.bytes : 0,
                        request.bytes, request.label);
  });
  step([&] { context.link.offer(request); });
  step([&] { context.link.relay(request); });
  std::vector<std::shared_ptr<Mapping>> mappings;
  step([&] { mappings = context.link.collect(request); });
  context.link.settle();
  return mappings;
}

}  // namespace accordion::detail
