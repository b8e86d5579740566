// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/models/llama_config.h"

namespace accordion {

/// A parameter of a Llama decoder.
struct LlamaParameter {
  std::string name;  ///< its FQN, which is Hugging Face's name
  std::vector<std::int64_t> shape;
};

/// Every parameter that a decoder of this configuration has, in the order of
/// the computation; a tied head has none of its own.
std::vector<LlamaParameter> llama_parameters(const LlamaConfig& config);

}  // namespace accordion
