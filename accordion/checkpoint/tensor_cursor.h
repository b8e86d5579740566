// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/tensor_source.h"

namespace accordion {

/// The elements of a tensor from first to last, a chunk at a time.
///
/// Memory  one chunk as it is stored, and as fp64 where that is asked for: at
///         most 1 MiB, however large the tensor is
class TensorCursor {
 public:
  static constexpr std::int64_t kChunkElements = 1 << 16;

  /// Requires  the tensor is of the source, and both outlive this
  TensorCursor(TensorSource& source, const TensorInfo& tensor);

  /// Reads the chunk that follows; false after the last one. Throws as
  /// TensorSource::read.
  bool next();

  /// Elements before this chunk.
  [[nodiscard]] std::int64_t begin() const { return begin_; }
  [[nodiscard]] std::int64_t numel() const { return numel_; }
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] std::span<const std::byte> bytes() const;

  /// Whether elements of this dtype can be had as numbers.
  [[nodiscard]] bool has_values() const { return convert_ != nullptr; }
  /// The chunk as numbers. Requires has_values().
  std::span<const double> values();

 private:
  TensorSource& source_;
  const TensorInfo& tensor_;
  std::int64_t element_bytes_;
  detail::ToFp64 convert_;
  std::int64_t begin_ = 0;
  std::int64_t numel_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
};

}  // namespace accordion
