// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace accordion {

/// A set of this host's cores, by the kernel's numbers. A value of plain words,
/// so that ranks can exchange it.
class CoreSet {
 public:
  static constexpr int kMost =
      1024;  ///< cores with higher numbers do not count
  using Words = std::array<std::uint64_t, kMost / 64>;

  CoreSet() = default;
  explicit CoreSet(const Words& words) : words_(words) {}
  /// Where this thread may run; empty where the kernel does not say.
  static CoreSet of_this_thread();

  [[nodiscard]] int count() const;
  [[nodiscard]] bool contains(int core) const;
  void add(int core);
  CoreSet& operator|=(const CoreSet& other);
  bool operator==(const CoreSet&) const = default;
  [[nodiscard]] const Words& words() const { return words_; }

  /// Part `index` of `parts` of about the same size, in the order of numbers,
  /// so that neighbours share caches and memory. Empty ones where there are
  /// fewer cores than parts.
  [[nodiscard]] CoreSet part(int index, int parts) const;
  /// Lets this thread, and those it starts, run on these cores only. Does
  /// nothing where there are none, or the kernel refuses.
  void bind_this_thread() const;

 private:
  Words words_{};
};

/// Cores that a rank computes on: those it may use, shared with the ranks of
/// its host that may use the very same; at least 1. `of_host` are the sets of
/// the ranks of one host, this one's at `index`.
[[nodiscard]] int cores_of_rank(std::span<const CoreSet> of_host, int index);

}  // namespace accordion
