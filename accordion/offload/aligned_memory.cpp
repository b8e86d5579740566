// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/aligned_memory.h"

#include <fmt/format.h>

#include "accordion/comm/communicator.h"
#include "accordion/offload/offload_store.h"

namespace accordion::detail {

AlignedMemory::AlignedMemory(std::int64_t bytes, std::string_view what) {
  if (bytes == 0) {
    return;
  }
  try {
    check_memory_limits(bytes, 0, what);
    mapping_.emplace(Mapping::anonymous(bytes, what));
  } catch (const CommError& error) {
    throw OffloadError(fmt::format(
        "[offload] {} bytes are not there for {}: offload less, or keep fewer "
        "buffers. {}",
        bytes, what, error.what()));
  }
}

std::span<std::byte> AlignedMemory::part(std::int64_t offset,
                                         std::int64_t bytes) const {
  return mapping_ ? std::span(mapping_->data() + offset,
                              static_cast<std::size_t>(bytes))
                  : std::span<std::byte>();
}

}  // namespace accordion::detail
