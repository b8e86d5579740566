// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/staged_operations.h"

#include <algorithm>
#include <cstring>

#include "accordion/comm/elements.h"
#include "accordion/comm/part_reducer.h"

namespace accordion::detail {

void StagedOperation::round(
    const std::function<void(std::byte*)>& write,
    const std::function<void(std::span<const void* const>)>& read) {
  const std::uint64_t round = ++context_.rounds;
  if (round > 2) {
    wait(kStageRead, round - 2, "for every rank to read an earlier round");
  }
  write(context_.stage(context_.rank, round));
  context_.control.publish(kStageWritten, round);
  wait(kStageWritten, round, "for the data of every rank");
  std::vector<const void*> stages;
  for (int rank = 0; rank < context_.world_size; ++rank) {
    stages.push_back(context_.stage(rank, round));
  }
  read(stages);
  context_.control.publish(kStageRead, round);
}

StagedGather::StagedGather(ShmContext& context, std::uint64_t call,
                           std::string_view label,
                           std::span<const GatherPart> parts)
    : StagedOperation(context, CommOp::AllGather, call, label),
      parts_(parts.begin(), parts.end()) {}

void StagedGather::finish() {
  for (const GatherPart& part : parts_) {
    const std::int64_t most = kStageBytes / element_bytes(part.full_dtype);
    for (std::int64_t first = 0; first < part.numel; first += most) {
      const std::int64_t count = std::min(most, part.numel - first);
      round(
          [&](std::byte* stage) {
            convert(stage, part.full_dtype,
                    offset(part.local, part.local_dtype, first),
                    part.local_dtype, count);
          },
          [&](std::span<const void* const> stages) {
            for (std::size_t rank = 0; rank < stages.size(); ++rank) {
              const auto piece = static_cast<std::int64_t>(rank) * part.numel;
              convert(offset(part.full, part.full_dtype, piece + first),
                      part.full_dtype, stages[rank], part.full_dtype, count);
            }
          });
    }
  }
}

StagedReduceScatter::StagedReduceScatter(ShmContext& context,
                                         std::uint64_t call,
                                         std::string_view label,
                                         std::span<const ReducePart> parts)
    : StagedOperation(context, CommOp::ReduceScatter, call, label),
      parts_(parts.begin(), parts.end()) {}

void StagedReduceScatter::finish() {
  const std::int64_t world_size = context_.world_size;
  for (const ReducePart& part : parts_) {
    const DType wire = part.full_dtype;
    PartReducer reducer(part);
    const std::int64_t most = kStageBytes / element_bytes(wire) / world_size /
                              kSquareLanes * kSquareLanes;
    for (std::int64_t first = 0; first < part.numel; first += most) {
      const std::int64_t count = std::min(most, part.numel - first);
      round(
          [&](std::byte* stage) {
            for (std::int64_t to = 0; to < world_size; ++to) {
              convert(offset(stage, wire, to * count), wire,
                      offset(part.full, wire, to * part.numel + first), wire,
                      count);
            }
          },
          [&](std::span<const void* const> stages) {
            std::vector<const void*> mine;
            for (const void* stage : stages) {
              mine.push_back(offset(stage, wire, context_.rank * count));
            }
            reducer.add(mine, count);
          });
    }
    reducer.finish();
  }
}

StagedAllReduce::StagedAllReduce(ShmContext& context, std::uint64_t call,
                                 std::string_view label,
                                 std::span<const ReducePart> parts)
    : StagedOperation(context, CommOp::AllReduce, call, label),
      parts_(parts.begin(), parts.end()) {}

// Every rank sums everything: W times the additions, but one round trip, and no
// rounding to the wire dtype between the sum and `local`.
void StagedAllReduce::finish() {
  for (const ReducePart& part : parts_) {
    const DType wire = part.full_dtype;
    PartReducer reducer(part);
    const std::int64_t most = kStageBytes / element_bytes(wire);
    for (std::int64_t first = 0; first < part.numel; first += most) {
      const std::int64_t count = std::min(most, part.numel - first);
      round(
          [&](std::byte* stage) {
            convert(stage, wire, offset(part.full, wire, first), wire, count);
          },
          [&](std::span<const void* const> stages) {
            reducer.add(stages, count);
          });
    }
    reducer.finish();
  }
}

Broadcast::Broadcast(ShmContext& context, std::uint64_t call,
                     std::string_view label, std::span<std::byte> data,
                     int root)
    : StagedOperation(context, CommOp::Broadcast, call, label),
      data_(data),
      root_(root) {}

void Broadcast::finish() {
  const auto most = static_cast<std::size_t>(kStageBytes);
  for (std::size_t first = 0; first < data_.size(); first += most) {
    const auto chunk =
        data_.subspan(first, std::min(most, data_.size() - first));
    round(
        [&](std::byte* stage) {
          if (context_.rank == root_) {
            std::memcpy(stage, chunk.data(), chunk.size());
          }
        },
        [&](std::span<const void* const> stages) {
          if (context_.rank != root_) {
            std::memcpy(chunk.data(), stages[static_cast<std::size_t>(root_)],
                        chunk.size());
          }
        });
  }
}

}  // namespace accordion::detail
