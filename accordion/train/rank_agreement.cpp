// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/rank_agreement.h"

#include <array>
#include <cstdint>
#include <exception>
#include <stdexcept>

namespace accordion {

std::vector<double> sum_over_ranks(Communicator& world,
                                   std::span<const double> values,
                                   std::string_view label) {
  std::vector<double> sums(values.begin(), values.end());
  const ReducePart part = {.full = sums.data(),
                           .full_dtype = DType::Float64,
                           .local = sums.data(),
                           .local_dtype = DType::Float64,
                           .reduce_dtype = DType::Float64,
                           .numel = static_cast<std::int64_t>(sums.size())};
  world.all_reduce({&part, 1}, nullptr, label).wait();
  return sums;
}

std::vector<double> gather_over_ranks(Communicator& world, double value,
                                      std::string_view label) {
  std::vector<double> values(static_cast<std::size_t>(world.world_size()), 0.0);
  values[static_cast<std::size_t>(world.rank())] = value;
  return sum_over_ranks(world, values, label);
}

std::string text_from_rank_0(Communicator& world,
                             const std::function<std::string()>& make,
                             std::string_view label) {
  std::string text;
  std::array<std::int64_t, 2> header{};  // length, and whether it is an error
  if (world.rank() == 0) {
    try {
      text = make();
    } catch (const std::exception& error) {
      text = error.what();
      header[1] = 1;
    }
    header[0] = static_cast<std::int64_t>(text.size());
  }
  world.broadcast(header.data(), sizeof(header), 0, label);
  text.resize(static_cast<std::size_t>(header[0]));
  if (!text.empty()) {
    world.broadcast(text.data(), header[0], 0, label);
  }
  if (header[1] != 0) {
    throw std::runtime_error(text);
  }
  return text;
}

}  // namespace accordion
