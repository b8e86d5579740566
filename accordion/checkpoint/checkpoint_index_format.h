// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

// Constants of docs/checkpoint_format.md that writer and reader share.
namespace accordion::detail {

inline constexpr std::string_view kIndexFormat = "accordion.checkpoint";
inline constexpr std::int64_t kIndexVersion = 1;
/// Begins the last line but one: the checksum of every byte before this.
inline constexpr std::string_view kChecksumLine = " \"xxh3_64\": \"";
/// Objects and arrays within each other: values, files, checksums; tensors, a
/// tensor, ranges, a range. Deeper ones are not ours.
inline constexpr int kMaxIndexDepth = 6;

}  // namespace accordion::detail
