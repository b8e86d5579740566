// SPDX-License-Identifier: BSD-3-Clause
//
// Folders that transformers saved (transformers_parity.py --fixtures), with the
// loss that it computed from them in fp32.
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/weight_source.h"
#include "accordion/models/llama.h"

namespace accordion {
namespace {

void expect_recorded_loss(const std::string& name) {
  const std::string folder = ACCORDION_TEST_DATA "/transformers/" + name;
  Unit<Llama> model(LlamaConfig::from_file(folder));
  const WeightSource source = WeightSource::open(folder);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    at::Tensor& value = parameter.value();
    source.read(
        parameter.key(), value.sizes().vec(), 0,
        {value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel())});
  }
  const at::Tensor tokens =
      torch::arange(48).mul(7).add(3).remainder(61).view({2, 24});
  const at::Tensor loss = model(tokens.narrow(1, 0, 23).contiguous(),
                                tokens.narrow(1, 1, 23).contiguous())
                              .loss;
  const auto expected =
      nlohmann::json::parse(std::ifstream(folder + "/expected.json"));
  EXPECT_NEAR(loss.item<double>(), expected["loss"].get<double>(), 1e-5);
}

TEST(TransformersFolder, Plain) {
  expect_recorded_loss("plain-fp32");
}

TEST(TransformersFolder, GroupedHeadsInShardsOfBf16) {
  expect_recorded_loss("gqa-bf16-sharded");
}

TEST(TransformersFolder, TiedHeadInFp16) {
  expect_recorded_loss("tied-fp16");
}

}  // namespace
}  // namespace accordion
