// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "accordion/plan/training.h"

namespace accordion::plan {

/// What was measured, and so what sizes and rate mean.
enum class MeasuredKind : std::uint8_t {
  Product,    ///< sizes: rows, inner, columns, in any order; FLOP/s
  Attention,  ///< sizes: sequence length, head dim; FLOP/s
  /// Sizes: tokens of a rank, hidden size; seconds that the operators of a step
  /// take alone, a second of its computation.
  Step,
  Optimizer,  ///< sizes: parameters that a rank steps; bytes/s
  /// Over all ranks of a host, by the dtype on the wire. Sizes: bytes of a
  /// unit; bytes/s.
  Gather,
  Reduce,
  AllReduce,
};
[[nodiscard]] std::string_view to_string(MeasuredKind kind);
/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] MeasuredKind parse_measured_kind(std::string_view name);

[[nodiscard]] std::string_view to_string(ComputeType compute);
/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] ComputeType parse_compute_type(std::string_view name);

/// The rate of one device at one kind of work of one size, forward and backward
/// together, as a calibration found it.
struct MeasuredRate {
  MeasuredKind kind = MeasuredKind::Product;
  ComputeType compute = ComputeType::Fp32;
  std::array<double, 3> sizes = {1.0, 1.0, 1.0};
  double per_s = 0.0;

  bool operator==(const MeasuredRate&) const = default;
};

/// The rate at other sizes: the mean of the logarithms of those measured, each
/// weighted by the inverse fourth power of its distance in the logarithms of
/// sizes, so that near ones decide. nullopt where none of the kind and type was
/// measured: a datasheet has to do then.
[[nodiscard]] std::optional<double> rate_at(
    std::span<const MeasuredRate> measured, MeasuredKind kind,
    ComputeType compute, std::array<double, 3> sizes);

}  // namespace accordion::plan
