// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/memory_by_kind.h"

#include <algorithm>

#include <fmt/format.h>

namespace accordion {

std::int64_t MemoryByKind::total() const {
  std::int64_t sum = 0;
  for (const MemoryKind& kind : kMemoryKinds) {
    sum += this->*kind.bytes;
  }
  return sum;
}

MemoryByKind larger_of(const MemoryByKind& a, const MemoryByKind& b) {
  MemoryByKind result;
  for (const MemoryKind& kind : kMemoryKinds) {
    result.*kind.bytes = std::max(a.*kind.bytes, b.*kind.bytes);
  }
  return result;
}

std::string describe(const MemoryByKind& memory) {
  std::string text;
  for (const MemoryKind& kind : kMemoryKinds) {
    if (memory.*kind.bytes == 0) {
      continue;
    }
    std::string name(kind.name);
    std::ranges::replace(name, '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        describe_bytes(memory.*kind.bytes));
  }
  return text.empty() ? "nothing" : text;
}

std::string describe_bytes(std::int64_t bytes) {
  constexpr double kKib = 1024.0;
  const auto size = static_cast<double>(bytes);
  if (size < kKib) {
    return fmt::format("{} B", bytes);
  }
  if (size < kKib * kKib) {
    return fmt::format("{:.1f} KiB", size / kKib);
  }
  return size < kKib * kKib * kKib
             ? fmt::format("{:.1f} MiB", size / (kKib * kKib))
             : fmt::format("{:.2f} GiB", size / (kKib * kKib * kKib));
}

std::string_view to_string(MemoryPhase phase) {
  constexpr std::array<std::string_view, kNumMemoryPhases> kNames = {
      "rest", "forward", "backward", "optimizer"};
  return kNames.at(static_cast<std::size_t>(phase));
}

MemoryPhase MemoryPeak::phase() const {
  const auto highest = std::ranges::max_element(
      by_phase, {}, [](const MemoryByKind& m) { return m.total(); });
  return static_cast<MemoryPhase>(highest - by_phase.begin());
}

MemoryByKind MemoryPeak::each() const {
  MemoryByKind result;
  for (const MemoryByKind& memory : by_phase) {
    result = larger_of(result, memory);
  }
  return result;
}

void MemoryPeak::add(MemoryPhase phase, const MemoryByKind& memory) {
  MemoryByKind& held = by_phase[static_cast<std::size_t>(phase)];
  if (memory.total() > held.total()) {
    held = memory;
  }
}

void MemoryPeak::add(const MemoryPeak& other) {
  for (std::size_t i = 0; i < by_phase.size(); ++i) {
    add(static_cast<MemoryPhase>(i), other.by_phase[i]);
  }
}

}  // namespace accordion
