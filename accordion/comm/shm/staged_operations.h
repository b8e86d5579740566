// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "accordion/comm/shm/operation.h"

// Collectives on ordinary memory, and broadcast: data passes through a staging
// area in rounds. In a round every rank writes up to kStageBytes of its own,
// waits for the others, and reads theirs; two halves let a rank write one round
// while its peers read the one before.
namespace accordion::detail {

class StagedOperation : public Operation {
 public:
  using Operation::Operation;
  [[nodiscard]] bool staged() const override { return true; }

 protected:
  /// `write` fills this rank's half; `read` is given every rank's.
  void round(const std::function<void(std::byte*)>& write,
             const std::function<void(std::span<const void* const>)>& read);
};

class StagedGather : public StagedOperation {
 public:
  StagedGather(ShmContext& context, std::uint64_t call, std::string_view label,
               std::span<const GatherPart> parts);

 protected:
  void finish() override;

 private:
  const std::vector<GatherPart> parts_;
};

class StagedReduceScatter : public StagedOperation {
 public:
  StagedReduceScatter(ShmContext& context, std::uint64_t call,
                      std::string_view label,
                      std::span<const ReducePart> parts);

 protected:
  void finish() override;

 private:
  const std::vector<ReducePart> parts_;
};

class StagedAllReduce : public StagedOperation {
 public:
  StagedAllReduce(ShmContext& context, std::uint64_t call,
                  std::string_view label, std::span<const ReducePart> parts);

 protected:
  void finish() override;

 private:
  const std::vector<ReducePart> parts_;
};

class Broadcast : public StagedOperation {
 public:
  Broadcast(ShmContext& context, std::uint64_t call, std::string_view label,
            std::span<std::byte> data, int root);

 protected:
  void finish() override;

 private:
  const std::span<std::byte> data_;
  const int root_;
};

/// Complete once every rank has called it.
class Barrier : public Operation {
 public:
  Barrier(ShmContext& context, std::uint64_t call, std::string_view label)
      : Operation(context, CommOp::Barrier, call, label) {}

 protected:
  void finish() override {}
};

}  // namespace accordion::detail
