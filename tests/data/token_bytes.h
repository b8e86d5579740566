// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accordion::testing {

/// Numbers as they lie in a file.
template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()),
          numbers.size() * sizeof(T)};
}

/// The header that llm.c writes before tokens.
inline std::string llm_c_header(std::int32_t magic, std::int32_t version,
                                std::int32_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

}  // namespace accordion::testing
