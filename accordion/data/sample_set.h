// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "accordion/data/token_source.h"

namespace accordion {

/// A target that does not count.
inline constexpr std::int64_t kNoTarget = -100;

/// Where one sample is written; the target of a token is the one after it.
struct SampleRow {
  std::span<std::int64_t> inputs;   ///< [seq_len]
  std::span<std::int64_t> targets;  ///< [seq_len]
};

/// A part of the data, cut into samples of seq_len tokens.
///
/// A sample is known by its position, a number that only the set understands;
/// each order gives positions in O(1), so that a run resumes anywhere.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  [[nodiscard]] virtual std::int64_t seq_len() const = 0;
  /// Samples of an epoch, at least 1.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Sample g of a walk through the data that begins anew at its end.
  [[nodiscard]] virtual std::int64_t strided(std::int64_t g) const = 0;
  /// Sample `index` of size(), in an epoch of that seed; all of them read the
  /// data once.
  [[nodiscard]] virtual std::int64_t in_epoch(std::int64_t index,
                                              std::uint64_t seed) const = 0;
  /// Sample i of n that are evenly spread from first to last.
  [[nodiscard]] virtual std::int64_t spread(std::int64_t i,
                                            std::int64_t n) const = 0;

  virtual void read(std::int64_t position, SampleRow row) const = 0;

  /// Whether targets may be kNoTarget, so that they have to be counted.
  [[nodiscard]] virtual bool masks_targets() const = 0;
};

/// Windows of a stream: sample i of an epoch is tokens [i * seq_len,
/// (i + 1) * seq_len), all of them shifted by a phase that is the epoch's own,
/// so that the model does not see the same cuts again. Documents are not looked
/// at; every token has a target. A position is that of the first token.
class StreamWindows : public SampleSet {
 public:
  /// Requires  range.size() > seq_len >= 1
  StreamWindows(const TokenRange& range, std::int64_t seq_len)
      : range_(range), seq_len_(seq_len) {}

  [[nodiscard]] std::int64_t seq_len() const override { return seq_len_; }
  [[nodiscard]] std::int64_t size() const override {
    return (range_.size() - 1) / seq_len_;
  }
  [[nodiscard]] std::int64_t strided(std::int64_t g) const override;
  [[nodiscard]] std::int64_t in_epoch(std::int64_t index,
                                      std::uint64_t seed) const override;
  [[nodiscard]] std::int64_t spread(std::int64_t i,
                                    std::int64_t n) const override;
  void read(std::int64_t position, SampleRow row) const override;
  [[nodiscard]] bool masks_targets() const override { return false; }

 private:
  /// The last position at which a window and its last target fit.
  [[nodiscard]] std::int64_t last() const {
    return range_.size() - seq_len_ - 1;
  }

  TokenRange range_;
  std::int64_t seq_len_;
};

}  // namespace accordion
