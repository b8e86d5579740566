// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/safetensors.h"

namespace accordion::detail {

/// The format's own limit, against files that would have us allocate at will.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::int64_t kLengthBytes = 8;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Elements of a shape that was checked: if no dim is 0, 63 bits count them.
std::int64_t numel_of(std::span<const std::int64_t> shape);

/// Bytes of one element of a dtype of the format; 0 for an unknown one.
std::int64_t safetensors_element_bytes(std::string_view dtype);

/// The start of a file of these tensors, whose bytes follow it in this order
/// without gaps: the length of the header, and the header. Sets where each
/// tensor's bytes are. Names and dtypes are the format's.
std::string safetensors_start(
    std::span<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata);

/// Parses a header and checks it against the size of the file.
///
/// Throws CheckpointError that names `file` and the tensor at fault
SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::int64_t file_bytes,
                                           const std::string& file);

}  // namespace accordion::detail
