// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/direct_operations.h"

#include <algorithm>
#include <stdexcept>

#include "accordion/comm/elements.h"
#include "accordion/comm/part_reducer.h"

namespace accordion::detail {
namespace {

// Where the memory at `mine`, in this rank's buffer, lies in each rank's.
std::vector<const void*> in_every_buffer(const ShmContext& context,
                                         const Segment& segment,
                                         const void* mine) {
  const auto distance =
      static_cast<const std::byte*>(mine) - segment.base(context.rank);
  std::vector<const void*> places;
  for (int rank = 0; rank < context.world_size; ++rank) {
    places.push_back(segment.base(rank) + distance);
  }
  return places;
}

// Whether results go past the caches, by the bytes that all ranks move. What a
// step does in between leaves nothing of that size in them, whatever size they
// say they have, and a line that is not read before it is stored to saves more
// than its next reader loses: 4 MB are reduced in 0.30 ms in place of 0.44 on
// a Xeon.
bool exceeds_caches(std::int64_t bytes) {
  return bytes > std::int64_t{1} << 20;
}

// By all ranks together.
std::int64_t bytes_moved(std::span<const GatherPart> parts, int world_size) {
  std::int64_t bytes = 0;
  for (const GatherPart& part : parts) {
    bytes += part.numel * world_size *
             (element_bytes(part.local_dtype) + element_bytes(part.full_dtype));
  }
  return bytes;
}

std::int64_t bytes_moved(std::span<const ReducePart> parts, int world_size) {
  std::int64_t bytes = 0;
  for (const ReducePart& part : parts) {
    bytes += part.numel * world_size *
             (element_bytes(part.local_dtype) +
              world_size * element_bytes(part.full_dtype));
  }
  return bytes;
}

void finish_use(ShmContext& context, Segment& segment) {
  ++segment.finished;
  context.control.publish(done(segment.id), segment.finished);
}

}  // namespace

DirectGather::DirectGather(ShmContext& context, std::uint64_t call,
                           std::string_view label,
                           std::span<const GatherPart> parts,
                           std::shared_ptr<Segment> segment)
    : Operation(context, CommOp::AllGather, call, label),
      parts_(parts.begin(), parts.end()),
      segment_(std::move(segment)),
      former_use_(segment_->uses) {
  ++segment_->uses;
}

std::byte* DirectGather::place_of(const GatherPart& part) const {
  return offset(part.full, part.full_dtype, context_.rank * part.numel);
}

bool DirectGather::is_in_place(const GatherPart& part) const {
  return part.local == place_of(part) && part.local_dtype == part.full_dtype;
}

bool DirectGather::try_write() {
  const bool moves = !std::all_of(
      parts_.begin(), parts_.end(),
      [this](const GatherPart& part) { return is_in_place(part); });
  if (moves && !context_.control.reached(done(segment_->id), former_use_)) {
    return false;
  }
  const auto store = exceeds_caches(bytes_moved(parts_, context_.world_size))
                         ? convert_past_cache
                         : convert;
  for (const GatherPart& part : parts_) {
    if (!is_in_place(part)) {
      store(place_of(part), part.full_dtype, part.local, part.local_dtype,
            part.numel);
    }
  }
  written_ = true;
  context_.control.publish(ready(CommOp::AllGather), call());
  return true;
}

void DirectGather::finish() {
  if (!written_) {
    wait(done(segment_->id), former_use_,
         "for every rank to release the buffer's former content");
    context_.progress();
  }
  if (!written_) {
    throw std::logic_error("[shm] an all-gather was overtaken by a later one");
  }
  wait(ready(CommOp::AllGather), call(), "for the data of every rank");
  ++segment_->finished;
}

DirectReduceScatter::DirectReduceScatter(ShmContext& context,
                                         std::uint64_t call,
                                         std::string_view label,
                                         std::span<const ReducePart> parts,
                                         std::shared_ptr<Segment> segment)
    : Operation(context, CommOp::ReduceScatter, call, label),
      parts_(parts.begin(), parts.end()),
      segment_(std::move(segment)) {
  ++segment_->uses;
}

void DirectReduceScatter::finish() {
  const bool past_cache =
      exceeds_caches(bytes_moved(parts_, context_.world_size));
  for (const ReducePart& part : parts_) {
    const auto* mine =
        offset(part.full, part.full_dtype, context_.rank * part.numel);
    reduce(in_every_buffer(context_, *segment_, mine), part, past_cache);
  }
  finish_use(context_, *segment_);
}

DirectAllReduce::DirectAllReduce(ShmContext& context, std::uint64_t call,
                                 std::string_view label,
                                 std::span<const ReducePart> parts,
                                 std::shared_ptr<Segment> segment)
    : Operation(context, CommOp::AllReduce, call, label),
      parts_(parts.begin(), parts.end()),
      segment_(std::move(segment)) {
  ++segment_->uses;
}

bool DirectAllReduce::possible(std::span<const ReducePart> parts) {
  return std::all_of(parts.begin(), parts.end(), [](const ReducePart& part) {
    const bool narrower =
        element_bytes(part.reduce_dtype) < element_bytes(part.full_dtype);
    return part.reduce_dtype == part.full_dtype || narrower;
  });
}

void DirectAllReduce::finish() {
  for (const ReducePart& part : parts_) {
    reduce_own_range(part);
  }
  context_.control.publish(kReduced, call());
  wait(kReduced, call(), "for the sums of every rank");
  for (const ReducePart& part : parts_) {
    copy_ranges(part);
  }
  finish_use(context_, *segment_);
}

// Nobody but rank r reads range r of any buffer until rank r says that it holds
// the sum: so the sum may replace the range of its own.
void DirectAllReduce::reduce_own_range(const ReducePart& part) const {
  const ElementRange range =
      all_reduce_range(part.numel, context_.rank, context_.world_size);
  const auto* mine = offset(part.full, part.full_dtype, range.first);
  const ReduceTarget in_place = {
      .local = const_cast<std::byte*>(mine),
      .local_dtype = part.full_dtype,
      .reduce_dtype = part.reduce_dtype,
      .scale = part.scale,
      .accumulate = false,
  };
  reduce(in_every_buffer(context_, *segment_, mine), part.full_dtype, in_place,
         range.count);
}

// Where `local` is `full`, the copy of range q goes over this rank's operand of
// range q, which rank q has read.
void DirectAllReduce::copy_ranges(const ReducePart& part) const {
  const auto bytes =
      part.numel * context_.world_size *
      (element_bytes(part.local_dtype) + element_bytes(part.full_dtype));
  PartReducer local(part, exceeds_caches(bytes));
  for (int owner = 0; owner < context_.world_size; ++owner) {
    const ElementRange range =
        all_reduce_range(part.numel, owner, context_.world_size);
    const auto* mine = offset(part.full, part.full_dtype, range.first);
    const void* sum = in_every_buffer(context_, *segment_,
                                      mine)[static_cast<std::size_t>(owner)];
    local.add_sums(sum, part.full_dtype, range.count);
  }
  local.finish();
}

}  // namespace accordion::detail
