// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/tensor_cursor.h"

#include <algorithm>

#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {

TensorCursor::TensorCursor(TensorSource& source, const TensorInfo& tensor)
    : source_(source),
      tensor_(tensor),
      element_bytes_(detail::safetensors_element_bytes(tensor.dtype)),
      convert_(detail::conversion_to_fp64(tensor.dtype)),
      bytes_(static_cast<std::size_t>(std::min(tensor.numel, kChunkElements) *
                                      element_bytes_)) {}

bool TensorCursor::next() {
  begin_ += numel_;
  numel_ = std::min(tensor_.numel - begin_, kChunkElements);
  if (numel_ == 0) {
    return false;
  }
  source_.read(tensor_, begin_,
               std::span(bytes_).first(
                   static_cast<std::size_t>(numel_ * element_bytes_)));
  return true;
}

std::span<const std::byte> TensorCursor::bytes() const {
  return std::span(bytes_).first(
      static_cast<std::size_t>(numel_ * element_bytes_));
}

std::span<const double> TensorCursor::values() {
  values_.resize(static_cast<std::size_t>(numel_));
  convert_(bytes_.data(), values_.data(), numel_);
  return values_;
}

}  // namespace accordion
