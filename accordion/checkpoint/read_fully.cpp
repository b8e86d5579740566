// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/read_fully.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace accordion::detail {

std::string read_fully(int descriptor, std::int64_t offset,
                       std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor, into.data(), into.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return got < 0 ? std::strerror(errno) : "the file has become shorter";
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return {};
}

}  // namespace accordion::detail
