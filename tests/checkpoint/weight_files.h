// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/checkpoint/safetensors_writer.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {

/// A file with a header of our choice, right or wrong, and `data_bytes` zeros.
inline std::filesystem::path write_raw(const TemporaryFolder& folder,
                                       const std::string& header,
                                       std::size_t data_bytes) {
  const auto path = folder.path() / "raw.safetensors";
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header << std::string(data_bytes, '\0');
  return path;
}

template <class T>
TensorData tensor_data(std::string name, std::string dtype,
                       std::vector<std::int64_t> shape,
                       const std::vector<T>& values) {
  return {std::move(name), std::move(dtype), std::move(shape),
          std::as_bytes(std::span(values))};
}

/// Passes when `call` throws a CheckpointError with all of `phrases`.
template <class Call>
void expect_checkpoint_error(Call&& call,
                             const std::vector<std::string>& phrases) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    for (const std::string& phrase : phrases) {
      EXPECT_NE(std::string(error.what()).find(phrase), std::string::npos)
          << "'" << phrase << "' is not in: " << error.what();
    }
  }
}

}  // namespace accordion::testing
