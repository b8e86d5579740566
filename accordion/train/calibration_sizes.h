// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a calibration measures: enough sizes that those between are near one.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "accordion/plan/training.h"

namespace accordion::calibration {

inline constexpr std::array kTypes = {
    plan::ComputeType::Fp32, plan::ComputeType::Bf16, plan::ComputeType::Fp16};

/// Of the work of operators that is measured in a type. Processors without
/// units for fp16 take ten times as long for it, and so would a calibration.
inline double share_of(plan::ComputeType type) {
  return type == plan::ComputeType::Fp16 ? 0.2 : 1.0;
}

/// Tokens, and the sides of a weight.
struct ProductSize {
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t columns;
};
inline constexpr std::array<std::array<std::int64_t, 2>, 10> kWeights = {
    {{128, 128},
     {128, 344},
     {256, 256},
     {256, 688},
     {512, 512},
     {512, 1376},
     {1024, 1024},
     {1024, 2752},
     {2048, 2048},
     {512, 8192}}};
inline constexpr std::array<std::int64_t, 3> kRows = {256, 1024, 4096};
/// Larger ones are as fast as these, and take long.
inline constexpr double kMostProductFlops = 20e9;
inline std::vector<ProductSize> product_sizes(double most_flops,
                                              plan::ComputeType type) {
  most_flops = std::min(most_flops, kMostProductFlops) * share_of(type);
  std::vector<ProductSize> sizes;
  for (const auto& [inner, columns] : kWeights) {
    for (const std::int64_t rows : kRows) {
      if (6.0 * static_cast<double>(rows * inner * columns) <= most_flops) {
        sizes.push_back({rows, inner, columns});
      }
    }
  }
  return sizes;
}

struct AttentionSize {
  std::int64_t seq_len;
  std::int64_t head_dim;
};
inline constexpr std::array<AttentionSize, 8> kAttentions = {{{64, 64},
                                                              {128, 32},
                                                              {128, 64},
                                                              {256, 64},
                                                              {256, 128},
                                                              {512, 64},
                                                              {512, 128},
                                                              {1024, 64}}};

/// Sequences of a rank and their length, and a decoder of some layers with
/// four heads or more, of 64 at most, and a feed-forward of 2.7 times the
/// width.
struct ModelSize {
  std::int64_t batch;
  std::int64_t seq_len;
  std::int64_t width;
  std::int64_t layers;
  bool sums_whole = false;  ///< also without shards, for the all-reduce
};
inline constexpr std::array<ModelSize, 7> kModels = {{{4, 128, 128, 4, true},
                                                      {4, 256, 256, 4},
                                                      {1, 256, 512, 4},
                                                      {4, 256, 512, 4, true},
                                                      {2, 128, 1024, 2, true},
                                                      {4, 256, 1024, 1},
                                                      {2, 128, 2048, 1}}};
inline constexpr std::array<ModelSize, 3> kModelsInFp16 = {
    {{4, 128, 128, 4, true}, {4, 256, 512, 2, true}, {4, 256, 1024, 1}}};
inline std::span<const ModelSize> model_sizes(plan::ComputeType type) {
  if (type == plan::ComputeType::Fp16) {
    return kModelsInFp16;
  }
  return kModels;
}

/// Moments enough to leave the buffers behind.
inline constexpr ModelSize kOffloaded = {2, 128, 1024, 3};

/// Of forward and backward of its products.
inline double product_flops(const ModelSize& size) {
  constexpr double kMatrices = 4.0 + 3.0 * 43 / 16;
  return 6.0 * kMatrices *
         static_cast<double>(size.layers * size.batch * size.seq_len) *
         static_cast<double>(size.width * size.width);
}

}  // namespace accordion::calibration
