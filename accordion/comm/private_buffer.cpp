// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/private_buffer.h"

#include "accordion/comm/shm/memory.h"

namespace accordion::detail {
namespace {

class PrivateBuffer final : public CommBuffer {
 public:
  PrivateBuffer(Mapping mapping, std::int64_t bytes)
      : CommBuffer(mapping.data(), bytes), mapping_(std::move(mapping)) {}

 private:
  Mapping mapping_;
};

}  // namespace

std::unique_ptr<CommBuffer> make_private_buffer(std::int64_t bytes,
                                                std::string_view label) {
  const std::int64_t pages = page_aligned(bytes);
  check_memory_limits(pages, 0, label);
  return std::make_unique<PrivateBuffer>(Mapping::anonymous(pages, label),
                                         bytes);
}

std::unique_ptr<CommBuffer> make_address_buffer(std::int64_t bytes,
                                                std::string_view label) {
  return std::make_unique<PrivateBuffer>(
      Mapping::addresses(page_aligned(bytes), label), bytes);
}

}  // namespace accordion::detail
