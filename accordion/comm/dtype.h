// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion {

/// Element type of a buffer, for the parts of Accordion that use no tensor.
/// Names are LibTorch's (`c10::ScalarType`), spelled out.
enum class DType : std::uint8_t {
  Float32,
  Bfloat16,
  Float16,
  Float64,
  Int64,
  Int32,
  Uint8,
};

/// Size of one element in bytes.
[[nodiscard]] std::int64_t element_bytes(DType dtype);

/// Short name as used in configuration and messages: "fp32", "bf16", "int64".
[[nodiscard]] std::string_view name(DType dtype);

}  // namespace accordion
