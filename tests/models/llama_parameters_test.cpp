// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_parameters.h"

#include <map>

#include <gtest/gtest.h>

#include "accordion/models/llama.h"

namespace accordion {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

void expect_parameters_of_module(const LlamaConfig& config) {
  Shapes expected;
  for (const auto& parameter : Llama(config)->named_parameters()) {
    expected[parameter.key()] = parameter.value().sizes().vec();
  }
  Shapes got;
  int64_t numel = 0;
  for (const LlamaParameter& parameter : llama_parameters(config)) {
    EXPECT_TRUE(got.emplace(parameter.name, parameter.shape).second);
    int64_t product = 1;
    for (const int64_t dim : parameter.shape) {
      product *= dim;
    }
    numel += product;
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(numel, config.numel());
}

TEST(LlamaParameters, AreThoseOfTheModule) {
  LlamaConfig config{.hidden_size = 12,
                     .intermediate_size = 20,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .head_dim = 6,
                     .vocab_size = 7,
                     .max_position_embeddings = 8};
  expect_parameters_of_module(config);
  config.tie_word_embeddings = true;
  config.attention_bias = true;
  config.mlp_bias = true;
  expect_parameters_of_module(config);
}

}  // namespace
}  // namespace accordion
