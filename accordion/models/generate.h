// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace accordion {

struct SamplingOptions {
  /// Tokens to add; 0 gives the prompt back.
  int64_t num_tokens = 128;
  /// Logits are divided by it. 0, the default, takes the largest logit.
  double temperature = 0;
  /// Only the k largest logits are drawn from. 0: all of them.
  int64_t top_k = 0;
  /// Equal seeds give equal text, on every rank alike.
  uint64_t seed = 0;
  /// Tokens that the model sees at most: the last ones.
  int64_t max_context = 1024;
};

/// Tokens [1, n] to logits [1, n, vocab_size].
using LogitsFunction = std::function<at::Tensor(const at::Tensor& tokens)>;

/// Continues `prompt` and returns it with the added tokens. Every token costs
/// one forward over the whole context.
///
/// Comm   that of `logits`: all ranks of a sharded model call with the same
///        arguments
/// Throws c10::ValueError for an empty prompt, or options below 0
std::vector<int64_t> generate(const LogitsFunction& logits,
                              std::vector<int64_t> prompt,
                              const SamplingOptions& options = {});

}  // namespace accordion
