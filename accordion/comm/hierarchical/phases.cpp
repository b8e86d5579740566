// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/phases.h"

#include "accordion/comm/elements.h"
#include "accordion/comm/part_reducer.h"

namespace accordion::detail {
namespace {

// The dtype of sums on their way between hosts: the one they were summed in.
DType sum_dtype(DType wire) {
  switch (wire) {
    case DType::Bfloat16:
    case DType::Float16:
      return DType::Float32;
    default:
      return wire;
  }
}

}  // namespace

void GatherPhases::operator()(HostContext& host) const {
  const int num_hosts = host.between->world_size();
  const int per_host = host.local->world_size();
  std::vector<GatherPart> across;
  std::vector<GatherPart> inside;
  for (const GatherPart& part : parts) {
    const DType dtype = part.full_dtype;
    // Those of this rank's place: [H * numel].
    std::byte* pieces = host.scratch.take(num_hosts * part.numel, dtype);
    across.push_back({part.local, part.local_dtype, pieces, dtype, part.numel});
    for (int block = 0; block < num_hosts; ++block) {
      inside.push_back({offset(pieces, dtype, block * part.numel), dtype,
                        offset(part.full, dtype, block * per_host * part.numel),
                        dtype, part.numel});
    }
  }
  host.between->all_gather_into(across, nullptr, label).wait();
  host.local->all_gather_into(inside, buffer, label).wait();
}

void ReduceScatterPhases::operator()(HostContext& host) const {
  const int num_hosts = host.between->world_size();
  const int per_host = host.local->world_size();
  std::vector<ReducePart> inside;
  std::vector<ReducePart> across;
  for (const ReducePart& part : parts) {
    const DType dtype = sum_dtype(part.full_dtype);
    // This host's, of the pieces of this rank's place: [H * numel].
    std::byte* sums = host.scratch.take(num_hosts * part.numel, dtype);
    for (int block = 0; block < num_hosts; ++block) {
      inside.push_back(
          {offset(part.full, part.full_dtype, block * per_host * part.numel),
           part.full_dtype, offset(sums, dtype, block * part.numel), dtype,
           dtype, part.numel});
    }
    ReducePart sums_across = part;
    sums_across.full = sums;
    sums_across.full_dtype = dtype;
    across.push_back(sums_across);
  }
  host.local->reduce_scatter_into(inside, buffer, label).wait();
  host.between->reduce_scatter_into(across, nullptr, label).wait();
}

namespace {

// One part of an all-reduce: L ranges of `range` elements, and `rest` elements
// left over.
struct Ranges {
  const ReducePart& part;
  std::int64_t range;
  std::int64_t rest;
  DType sum;
  std::byte* host_sums;     // [range + rest] of sum: the range, then the rest
  std::byte* range_result;  // [range] of reduce_dtype
  std::byte* results;       // [numel] of reduce_dtype

  Ranges(const ReducePart& of, int per_host, Scratch& scratch)
      : part(of),
        range(of.numel / per_host),
        rest(of.numel % per_host),
        sum(sum_dtype(of.full_dtype)),
        host_sums(scratch.take(range + rest, sum)),
        range_result(scratch.take(range, of.reduce_dtype)),
        results(scratch.take(of.numel, of.reduce_dtype)) {}

  std::byte* rest_sums() const { return offset(host_sums, sum, range); }
  std::byte* rest_results() const {
    return offset(results, part.reduce_dtype, part.numel - rest);
  }
  ReducePart range_inside() const {
    return {part.full, part.full_dtype, host_sums, sum, sum, range};
  }
  ReducePart rest_inside() const {
    return {offset(part.full, part.full_dtype, part.numel - rest),
            part.full_dtype,
            rest_sums(),
            sum,
            sum,
            rest};
  }
  ReducePart across(const std::byte* sums, std::byte* result,
                    std::int64_t numel) const {
    return {sums,  sum,       result, part.reduce_dtype, part.reduce_dtype,
            numel, part.scale};
  }
  void store() const {
    PartReducer local(part);
    local.add_sums(results, part.reduce_dtype, part.numel);
    local.finish();
  }
};

}  // namespace

void AllReducePhases::operator()(HostContext& host) const {
  std::vector<Ranges> all;
  all.reserve(parts.size());
  std::vector<ReducePart> ranges_inside;
  std::vector<ReducePart> rests_inside;
  std::vector<ReducePart> across;
  std::vector<GatherPart> gather;
  for (const ReducePart& part : parts) {
    const Ranges& one =
        all.emplace_back(part, host.local->world_size(), host.scratch);
    ranges_inside.push_back(one.range_inside());
    rests_inside.push_back(one.rest_inside());
    across.push_back(one.across(one.host_sums, one.range_result, one.range));
    across.push_back(one.across(one.rest_sums(), one.rest_results(), one.rest));
    gather.push_back({one.range_result, part.reduce_dtype, one.results,
                      part.reduce_dtype, one.range});
  }
  host.local->all_reduce(rests_inside, nullptr, label).wait();
  host.local->reduce_scatter_into(ranges_inside, buffer, label).wait();
  host.between->all_reduce(across, nullptr, label).wait();
  // Also tells that nobody on this host reads `full` any more, so that `local`
  // may be the same memory.
  host.local->all_gather_into(gather, nullptr, label).wait();
  for (const Ranges& one : all) {
    one.store();
  }
}

}  // namespace accordion::detail
