// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "accordion/comm/shm/operation.h"

// Collectives on CommBuffers: every byte moves once.
namespace accordion::detail {

/// Each rank writes its pieces into the common buffer, which is the result;
/// nothing of those that lie there in place.
class DirectGather : public Operation {
 public:
  DirectGather(ShmContext& context, std::uint64_t call, std::string_view label,
               std::span<const GatherPart> parts,
               std::shared_ptr<Segment> segment);

  /// Writes this rank's pieces unless a rank still reads the buffer's former
  /// content, which they would replace. Called in the order of the calls.
  /// False: try again later.
  bool try_write();

 protected:
  void finish() override;

 private:
  [[nodiscard]] std::byte* place_of(const GatherPart& part) const;
  [[nodiscard]] bool is_in_place(const GatherPart& part) const;

  const std::vector<GatherPart> parts_;
  const std::shared_ptr<Segment> segment_;
  const std::uint64_t former_use_;
  bool written_ = false;
};

/// Each rank reads its range of every rank's exported buffer, and sums.
class DirectReduceScatter : public Operation {
 public:
  DirectReduceScatter(ShmContext& context, std::uint64_t call,
                      std::string_view label, std::span<const ReducePart> parts,
                      std::shared_ptr<Segment> segment);

 protected:
  void finish() override;

 private:
  const std::vector<ReducePart> parts_;
  const std::shared_ptr<Segment> segment_;
};

/// A reduce-scatter in place, then everybody reads everybody's range.
class DirectAllReduce : public Operation {
 public:
  DirectAllReduce(ShmContext& context, std::uint64_t call,
                  std::string_view label, std::span<const ReducePart> parts,
                  std::shared_ptr<Segment> segment);

  /// Whether the wire dtype holds the rounded sums, which pass through it.
  [[nodiscard]] static bool possible(std::span<const ReducePart> parts);

 protected:
  void finish() override;

 private:
  void reduce_own_range(const ReducePart& part) const;
  void copy_ranges(const ReducePart& part) const;

  const std::vector<ReducePart> parts_;
  const std::shared_ptr<Segment> segment_;
};

}  // namespace accordion::detail
