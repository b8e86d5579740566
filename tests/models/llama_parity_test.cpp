// SPDX-License-Identifier: BSD-3-Clause
// Follows PyTorch's own training curves: see tests/data/parity/README.md.
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accordion/checkpoint/weight_source.h"
#include "accordion/models/llama.h"

namespace accordion {
namespace {

const std::string kData = ACCORDION_TEST_DATA "/parity/";
constexpr int64_t kSeqLen = 128;
constexpr int64_t kBatch = 8;

struct Step {
  double loss;
  double grad_norm;
};

std::vector<Step> read_curve(const std::string& name) {
  std::ifstream file(kData + name);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "step,loss,grad_norm");
  std::vector<Step> steps;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string step;
    std::string loss;
    std::string grad_norm;
    std::getline(fields, step, ',');
    std::getline(fields, loss, ',');
    std::getline(fields, grad_norm, ',');
    steps.push_back({std::stod(loss), std::stod(grad_norm)});
  }
  return steps;
}

std::string read_text() {
  std::ifstream file(kData + "data.txt", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Tokens, or with `ahead` 1 targets, of one step: [kBatch, kSeqLen].
at::Tensor batch(const std::string& text, int64_t step, int64_t ahead) {
  const int64_t starts = static_cast<int64_t>(text.size()) - kSeqLen - 1;
  at::Tensor tokens = at::empty({kBatch, kSeqLen}, at::kLong);
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t begin = (step * kBatch + i) * kSeqLen % starts + ahead;
    for (int64_t j = 0; j < kSeqLen; ++j) {
      tokens.mutable_data_ptr<int64_t>()[i * kSeqLen + j] =
          static_cast<unsigned char>(text[static_cast<size_t>(begin + j)]);
    }
  }
  return tokens;
}

Unit<Llama> load(const std::string& model_name) {
  Unit<Llama> model(LlamaConfig::from_file(kData + model_name + ".json"));
  const WeightSource source =
      WeightSource::open(kData + "init-" + model_name + ".safetensors");
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    at::Tensor& value = parameter.value();
    source.read(
        parameter.key(), value.sizes().vec(), 0,
        {value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel())});
  }
  return model;
}

torch::optim::AdamW make_optimizer(const std::vector<at::Tensor>& parameters) {
  return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(3e-4)
                                             .betas({0.9, 0.95})
                                             .eps(1e-8)
                                             .weight_decay(0.1));
}

void expect_relative(double got, double expected, double tolerance,
                     const std::string& what) {
  EXPECT_LE(std::abs(got - expected), tolerance * std::abs(expected))
      << what << ": got " << got << ", expected " << expected;
}

void expect_follows(const std::string& model_name) {
  const std::vector<Step> curve =
      read_curve(model_name + ".global-batch-8.csv");
  ASSERT_EQ(curve.size(), 30U);
  const std::string text = read_text();
  Unit<Llama> model = load(model_name);
  const std::vector<at::Tensor> parameters = model->parameters();
  torch::optim::AdamW optimizer = make_optimizer(parameters);
  for (size_t step = 0; step < curve.size(); ++step) {
    const auto index = static_cast<int64_t>(step);
    const at::Tensor loss =
        model(batch(text, index, 0), batch(text, index, 1)).loss;
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    optimizer.step();
    optimizer.zero_grad();
    const std::string what = "step " + std::to_string(step);
    expect_relative(loss.item<double>(), curve[step].loss, 1e-5, what);
    expect_relative(norm, curve[step].grad_norm, 1e-4, what + ", norm");
  }
}

TEST(LlamaParity, TinyFollowsPyTorch) {
  expect_follows("tiny");
}

TEST(LlamaParity, GroupedHeadsFollowPyTorch) {
  expect_follows("tiny-gqa");
}

/// Copies fp32 master weights into the bf16 model that computes.
void round_into(const std::vector<at::Tensor>& masters,
                const std::vector<at::Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < masters.size(); ++i) {
    parameters[i].copy_(masters[i]);
  }
}

TEST(LlamaParity, Bf16StaysNearTheCurveOfFp32) {
  const std::vector<Step> curve = read_curve("tiny.global-batch-8.csv");
  const std::string text = read_text();
  Unit<Llama> model = load("tiny");
  std::vector<at::Tensor> masters;
  for (const at::Tensor& parameter : model->parameters()) {
    masters.push_back(parameter.detach().clone().requires_grad_());
  }
  torch::optim::AdamW optimizer = make_optimizer(masters);
  model->to(at::kBFloat16);
  const std::vector<at::Tensor> parameters = model->parameters();
  for (size_t step = 0; step < curve.size(); ++step) {
    round_into(masters, parameters);
    const auto index = static_cast<int64_t>(step);
    const at::Tensor loss =
        model(batch(text, index, 0), batch(text, index, 1)).loss;
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    loss.backward();
    for (size_t i = 0; i < masters.size(); ++i) {
      masters[i].mutable_grad() = parameters[i].grad().to(at::kFloat);
      parameters[i].mutable_grad() = at::Tensor();
    }
    const double norm = torch::nn::utils::clip_grad_norm_(masters, 1.0);
    optimizer.step();
    const std::string what = "step " + std::to_string(step);
    expect_relative(loss.item<double>(), curve[step].loss, 3e-3, what);
    expect_relative(norm, curve[step].grad_norm, 3e-2, what + ", norm");
  }
}

}  // namespace
}  // namespace accordion
