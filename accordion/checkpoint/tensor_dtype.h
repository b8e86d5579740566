// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace accordion::detail {

/// LibTorch's element type as safetensors spells it, and back.
///
/// Throws c10::ValueError for one that the other does not have
std::string safetensors_dtype(c10::ScalarType type);
c10::ScalarType scalar_type_of(const std::string& dtype);

}  // namespace accordion::detail
