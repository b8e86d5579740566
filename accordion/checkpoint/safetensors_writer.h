// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "accordion/checkpoint/safetensors.h"

namespace accordion {

/// A whole tensor to be written.
struct TensorData {
  std::string name;
  std::string dtype;  ///< as the format spells it
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< row-major; of the caller
};

/// The start of a file of these tensors, whose bytes follow it in this order:
/// the length of the header, and the header. `path` stands for the file in
/// errors; throws as write_safetensors.
std::string safetensors_start(
    std::span<const TensorData> tensors,
    const std::map<std::string, std::string>& metadata,
    const std::filesystem::path& path);

/// Writes a safetensors file. It appears under its name when it is complete: a
/// file of that name keeps its old content until then.
///
/// Throws CheckpointError for a repeated or reserved name, an unknown dtype,
///        bytes that do not fit shape and dtype, or when writing fails
void write_safetensors(const std::filesystem::path& path,
                       std::span<const TensorData> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace accordion
