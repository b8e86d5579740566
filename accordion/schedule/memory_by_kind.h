// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace accordion {

/// What a rank's memory is held for.
///
/// Units  bytes, padding included. Memory that ranks of a host share counts for
///        each with its part, so that the ranks add up to what the host holds.
struct MemoryByKind {
  /// This rank's pieces in the stored dtype or, where they are offloaded, the
  /// buffers through which shards pass.
  std::int64_t sharded_parameters = 0;
  /// Slots that units are gathered into, in use or not, and whole copies that
  /// stay: of replicated parameters in param_dtype, and of neighbours
  /// (FsdpOptions::reshard_to_ranks).
  std::int64_t unsharded_parameters = 0;
  std::int64_t gradients = 0;  ///< of the pieces; the same for them
  std::int64_t optimizer = 0;  ///< its state
  /// What forward and backward allocate: saved for backward, or on the way; and
  /// the buffers through which offloaded ones pass.
  std::int64_t activations = 0;
  /// Slots of whole gradients on their way to a reduction, in use or not.
  std::int64_t communication_buffers = 0;
  /// Other tensors: a module's buffers, ignored parameters, batches.
  std::int64_t other = 0;

  [[nodiscard]] std::int64_t total() const;
  bool operator==(const MemoryByKind&) const = default;
};

/// A field of MemoryByKind, and what metrics and messages call it.
struct MemoryKind {
  std::string_view name;
  std::int64_t MemoryByKind::*bytes;
};
inline constexpr std::array<MemoryKind, 7> kMemoryKinds = {{
    {"sharded_parameters", &MemoryByKind::sharded_parameters},
    {"unsharded_parameters", &MemoryByKind::unsharded_parameters},
    {"gradients", &MemoryByKind::gradients},
    {"optimizer", &MemoryByKind::optimizer},
    {"activations", &MemoryByKind::activations},
    {"communication_buffers", &MemoryByKind::communication_buffers},
    {"other", &MemoryByKind::other},
}};

/// The larger of the two, kind by kind.
[[nodiscard]] MemoryByKind larger_of(const MemoryByKind& a,
                                     const MemoryByKind& b);

/// "sharded parameters 12.0 MiB, gradients 12.0 MiB, …": what is not zero.
[[nodiscard]] std::string describe(const MemoryByKind& memory);

/// "512 B", "1.5 KiB", "212.0 MiB", "7.98 GiB".
[[nodiscard]] std::string describe_bytes(std::int64_t bytes);

/// What a step is doing.
enum class MemoryPhase : std::uint8_t {
  Rest,  ///< between steps, and whatever is none of the others
  Forward,
  Backward,
  Optimizer,
};
inline constexpr int kNumMemoryPhases = 4;
[[nodiscard]] std::string_view to_string(MemoryPhase phase);

/// What a rank held at most, phase by phase.
struct MemoryPeak {
  /// At the moment of the phase when the total was highest; zeros for a phase
  /// that did not occur.
  std::array<MemoryByKind, kNumMemoryPhases> by_phase = {};

  /// The phase whose total was highest.
  [[nodiscard]] MemoryPhase phase() const;
  /// What was held then.
  [[nodiscard]] const MemoryByKind& highest() const { return of(phase()); }
  /// The highest of each kind, which need not have been at one time.
  [[nodiscard]] MemoryByKind each() const;
  [[nodiscard]] const MemoryByKind& of(MemoryPhase phase) const {
    return by_phase[static_cast<std::size_t>(phase)];
  }
  /// Takes `memory` where its total is higher than what was held in `phase`.
  void add(MemoryPhase phase, const MemoryByKind& memory);
  void add(const MemoryPeak& other);
};

}  // namespace accordion
