// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/verify_ranks.h"

#include <cstdint>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
// Compiled in, so that users of the library need not link it.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace accordion {

namespace {

struct Fingerprint {
  std::int64_t structure = 0;
  std::int64_t values = 0;
};

std::int64_t hash(const void* data, std::size_t bytes, std::int64_t seed) {
  return static_cast<std::int64_t>(
      XXH64(data, bytes, static_cast<XXH64_hash_t>(seed)));
}

Fingerprint fingerprint(const UnitMembers& unit, bool values) {
  Fingerprint print;
  print.structure = hash(unit.name.data(), unit.name.size(), 0);
  for (const MemberParameter& parameter : unit.parameters) {
    const std::string described = c10::str(
        parameter.name, parameter.tensor.sizes(),
        parameter.tensor.scalar_type(), parameter.tensor.requires_grad());
    print.structure = hash(described.data(), described.size(), print.structure);
    if (values && !parameter.tensor.is_meta()) {
      const at::Tensor data = parameter.tensor.detach().cpu().contiguous();
      print.values = hash(data.const_data_ptr(), data.nbytes(), print.values);
    }
  }
  return print;
}

}  // namespace

void verify_ranks(const std::vector<UnitMembers>& units,
                  Communicator& communicator, bool values) {
  // Two numbers a unit, and their number first: ranks with another number of
  // units still exchange buffers of one size.
  constexpr std::size_t kMostCompared = 4096;
  std::vector<std::int64_t> mine(1 + 2 * kMostCompared, 0);
  mine[0] = static_cast<std::int64_t>(units.size());
  for (std::size_t i = 0; i < std::min(units.size(), kMostCompared); ++i) {
    const Fingerprint print = fingerprint(units[i], values);
    mine[1 + 2 * i] = print.structure;
    mine[2 + 2 * i] = print.values;
  }
  const auto world = static_cast<std::size_t>(communicator.world_size());
  std::vector<std::int64_t> all(mine.size() * world);
  const GatherPart part{.local = mine.data(),
                        .local_dtype = DType::Int64,
                        .full = all.data(),
                        .full_dtype = DType::Int64,
                        .numel = static_cast<std::int64_t>(mine.size())};
  communicator.all_gather_into({&part, 1}, nullptr, "fully_shard").wait();

  for (std::size_t rank = 1; rank < world; ++rank) {
    const std::int64_t* theirs = all.data() + rank * mine.size();
    TORCH_CHECK_VALUE(all[0] == theirs[0], "[fully_shard] rank 0 has ", all[0],
                      " units, rank ", rank, " has ", theirs[0],
                      ". Build the same module on every rank.");
    for (std::size_t i = 0; i < std::min(units.size(), kMostCompared); ++i) {
      TORCH_CHECK_VALUE(
          all[1 + 2 * i] == theirs[1 + 2 * i], "[fully_shard] unit '",
          units[i].name, "' has other parameters on rank ", rank,
          " than on rank 0 (name, shape, dtype or requires_grad). Build "
          "the same module on every rank.");
      TORCH_CHECK_VALUE(
          all[2 + 2 * i] == theirs[2 + 2 * i],
          "[fully_shard] the parameters of unit '", units[i].name,
          "' have other values on rank ", rank,
          " than on rank 0. Seed every rank alike (torch::manual_seed) before "
          "building the module, or load the same file.");
    }
  }
}

void broadcast_values(const std::vector<UnitMembers>& units,
                      Communicator& communicator) {
  const at::NoGradGuard no_grad;
  for (const UnitMembers& unit : units) {
    for (const MemberParameter& parameter : unit.parameters) {
      if (parameter.tensor.is_meta() || parameter.tensor.numel() == 0) {
        continue;
      }
      const at::Tensor data = parameter.tensor.detach().contiguous();
      communicator.broadcast(data.mutable_data_ptr(),
                             static_cast<std::int64_t>(data.nbytes()),
                             /*root=*/0, parameter.name);
      if (!data.is_same(parameter.tensor)) {
        parameter.tensor.detach().copy_(data);
      }
    }
  }
}

}  // namespace accordion
