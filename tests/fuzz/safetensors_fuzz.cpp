// SPDX-License-Identifier: BSD-3-Clause
// A safetensors file of any bytes is refused with a CheckpointError, or its
// tensors lie in it, apart from each other, and can be read.
#include "accordion/checkpoint/safetensors.h"

#include <algorithm>
#include <vector>

#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/safetensors_header.h"
#include "tests/fuzz/fuzz_support.h"

using accordion::testing::MemoryFile;
using accordion::testing::require;

namespace {

void check(const accordion::SafetensorsFile& file, std::int64_t file_bytes) {
  std::int64_t end = 0;
  for (const accordion::TensorEntry& tensor : file.tensors()) {
    require(tensor.begin >= end && tensor.end >= tensor.begin);
    require(tensor.end - tensor.begin ==
            tensor.numel() *
                accordion::detail::safetensors_element_bytes(tensor.dtype));
    end = tensor.end;
    if (accordion::detail::conversion_to_fp32(tensor.dtype) != nullptr) {
      std::vector<float> some(std::min<std::int64_t>(tensor.numel(), 64));
      file.read(tensor, tensor.numel() - static_cast<std::int64_t>(some.size()),
                some);
    }
  }
  require(end <= file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  static const MemoryFile memory;
  memory.set_content(data, size);
  try {
    const accordion::SafetensorsFile file(memory.path());
    check(file, static_cast<std::int64_t>(size));
  } catch (const accordion::CheckpointError&) {
    // As documented.
  }
  return 0;
}
