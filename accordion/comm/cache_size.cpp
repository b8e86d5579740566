// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/cache_size.h"

#include <fstream>

namespace accordion::detail {
namespace {

// The kernel's word, as in "32768K". Not sysconf's: glibc multiplies by the
// cores of the socket on some processors.
std::int64_t last_level_bytes() {
  constexpr std::int64_t kUsual = std::int64_t{32} << 20;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::int64_t kib = 0;
  char unit = 0;
  return file >> kib >> unit && unit == 'K' ? kib * 1024 : kUsual;
}

}  // namespace

bool exceeds_caches(std::int64_t bytes) {
  static const std::int64_t limit = last_level_bytes();
  return bytes > limit / 2;
}

}  // namespace accordion::detail
