// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/dtype.h"

#include <stdexcept>

namespace accordion {

std::int64_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64:
      return 8;
    case DType::Float32:
    case DType::Int32:
      return 4;
    case DType::Bfloat16:
    case DType::Float16:
      return 2;
    case DType::Uint8:
      return 1;
  }
  throw std::logic_error("[dtype] value outside the enumeration");
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return "fp32";
    case DType::Bfloat16:
      return "bf16";
    case DType::Float16:
      return "fp16";
    case DType::Float64:
      return "fp64";
    case DType::Int64:
      return "int64";
    case DType::Int32:
      return "int32";
    case DType::Uint8:
      return "uint8";
  }
  throw std::logic_error("[dtype] value outside the enumeration");
}

}  // namespace accordion
