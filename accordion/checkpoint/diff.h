// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accordion/checkpoint/tensor_source.h"

namespace accordion {

/// A tensor that both sides have, in the same shape.
///
/// Differences of numbers are those of their values as fp64; integers that are
/// too large for that and differ do so by at least 1. Between two NaN there is
/// none. It is infinite where one is NaN, or an infinity that the other is not.
struct TensorDifference {
  std::string name;
  std::string dtype_a;
  std::string dtype_b;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  /// Elements whose bits differ; whose values do, where the dtypes differ.
  std::int64_t differing = 0;
  /// Whether elements of both dtypes can be had as numbers. Where not, what
  /// follows is not set.
  bool has_values = false;
  double max_absolute = 0.0;
  /// Largest |a - b| / max(|a|, |b|).
  double max_relative = 0.0;
  std::int64_t at = -1;  ///< first element of max_absolute; -1: none differs
  double a = 0.0;        ///< its values
  double b = 0.0;

  /// Every bit is the same.
  [[nodiscard]] bool is_identical() const {
    return differing == 0 && dtype_a == dtype_b;
  }
};

/// A tensor of another shape on each side.
struct ShapeDifference {
  std::string name;
  std::vector<std::int64_t> shape_a;
  std::vector<std::int64_t> shape_b;
};

struct DiffReport {
  std::string path_a;
  std::string path_b;
  std::vector<TensorDifference> tensors;  ///< largest difference first
  std::vector<ShapeDifference> shapes;
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  /// Tensors of optimizer and rng, where the other side is plain weights.
  std::int64_t left_out = 0;
};

/// Compares two sources, tensor by tensor. Where one side is plain weights,
/// only the tensors of the other's model take part, without their "model/".
/// Names and aliases both count.
///
/// Memory  a chunk of a tensor from each side
/// Throws  CheckpointError where something is damaged
DiffReport diff(TensorSource& a, TensorSource& b);

/// Whether nothing differs: no bit, or with a tolerance no value by more than
/// that, whatever the dtypes. Never where one side has a tensor that the other
/// lacks, or has in another shape.
bool is_same(const DiffReport& report, std::optional<double> tolerance);

/// For people. Identical tensors are counted, or listed too.
std::string to_text(const DiffReport& report, std::optional<double> tolerance,
                    bool with_identical);

/// Whether a tensor counts as the same, as for is_same.
bool is_same(const TensorDifference& tensor, std::optional<double> tolerance);

}  // namespace accordion
