// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/stock_init.h"

#include <cmath>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>

namespace accordion {

namespace {

namespace nn = torch::nn;

using Chosen = std::optional<InitialValue>;

template <class... Impl>
bool is_any(const nn::Module& module) {
  return (... || (dynamic_cast<const Impl*>(&module) != nullptr));
}

/// Inputs and outputs that one element of a weight serves.
struct Fans {
  double in = 1;
  double out = 1;
};

Fans fans_of(const at::Tensor& weight) {
  double window = 1;
  for (std::int64_t dim = 2; dim < weight.dim(); ++dim) {
    window *= static_cast<double>(weight.size(dim));
  }
  return {static_cast<double>(weight.size(1)) * window,
          static_cast<double>(weight.size(0)) * window};
}

InitRule within_inverse_root(double count) {
  return InitRule::within(count > 0 ? 1 / std::sqrt(count) : 0);
}

InitRule xavier_uniform(const at::Tensor& weight) {
  const Fans fans = fans_of(weight);
  return InitRule::within(std::sqrt(6 / (fans.in + fans.out)));
}

InitRule xavier_normal(const at::Tensor& weight) {
  const Fans fans = fans_of(weight);
  return InitRule::normal(0, std::sqrt(2 / (fans.in + fans.out)));
}

/// Linear layers and convolutions: weight and bias within 1 / sqrt(fan in),
/// which is what kaiming_uniform_ with a = sqrt(5) comes to.
Chosen of_projection(const nn::Module& module, const std::string& name) {
  if (name != "weight" && name != "bias") {
    return std::nullopt;
  }
  const auto parameters = module.named_parameters(/*recurse=*/false);
  return within_inverse_root(fans_of(parameters["weight"]).in);
}

Chosen of_norm(const std::string& name) {
  if (name == "weight") {
    return InitRule::constant(1);
  }
  return name == "bias" ? Chosen(InitRule::constant(0)) : std::nullopt;
}

template <class Options>
Chosen of_embedding(const Options& options, const std::string& name,
                    const at::Tensor& parameter) {
  if (name != "weight") {
    return std::nullopt;
  }
  InitRule rule = InitRule::normal(0, 1);
  if (const auto row = options.padding_idx()) {
    const std::int64_t index = *row < 0 ? *row + parameter.size(0) : *row;
    rule.zero_begin = index * parameter.size(1);
    rule.zero_end = rule.zero_begin + parameter.size(1);
  }
  return rule;
}

Chosen of_attention(const std::string& name, const at::Tensor& parameter) {
  if (name == "in_proj_weight" || name == "q_proj_weight" ||
      name == "k_proj_weight" || name == "v_proj_weight") {
    return xavier_uniform(parameter);
  }
  if (name == "in_proj_bias" || name == "out_proj.bias") {
    return InitRule::constant(0);
  }
  return name == "bias_k" || name == "bias_v" ? Chosen(xavier_normal(parameter))
                                              : std::nullopt;
}

/// The hidden size of a recurrent module, whose parameters all lie within
/// 1 / sqrt(it); 0 for other modules.
template <template <class> class Base, class... Impl>
std::int64_t hidden_size(const nn::Module& module) {
  std::int64_t size = 0;
  (..., [&] {
    if (const auto* base = dynamic_cast<const Base<Impl>*>(&module)) {
      size = base->options_base.hidden_size();
    }
  }());
  return size;
}

Chosen of_recurrent(const nn::Module& module, const std::string& name) {
  const std::int64_t size =
      hidden_size<nn::detail::RNNImplBase, nn::RNNImpl, nn::LSTMImpl,
                  nn::GRUImpl>(module) +
      hidden_size<nn::detail::RNNCellImplBase, nn::RNNCellImpl,
                  nn::LSTMCellImpl, nn::GRUCellImpl>(module);
  const bool is_own = name.starts_with("weight_") || name.starts_with("bias_");
  return size > 0 && is_own
             ? Chosen(within_inverse_root(static_cast<double>(size)))
             : std::nullopt;
}

bool is_projection(const nn::Module& module) {
  return is_any<nn::LinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
                nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
                nn::ConvTranspose3dImpl>(module);
}

bool has_running_statistics(const nn::Module& module) {
  return is_any<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
                nn::InstanceNorm3dImpl>(module);
}

}  // namespace

Chosen stock_initial_value(const nn::Module& module, const std::string& name,
                           const at::Tensor& parameter) {
  if (is_projection(module)) {
    return of_projection(module, name);
  }
  if (has_running_statistics(module) ||
      is_any<nn::LayerNormImpl, nn::GroupNormImpl>(module)) {
    return of_norm(name);
  }
  if (const auto* embedding = dynamic_cast<const nn::EmbeddingImpl*>(&module)) {
    return of_embedding(embedding->options, name, parameter);
  }
  if (const auto* bag = dynamic_cast<const nn::EmbeddingBagImpl*>(&module)) {
    return of_embedding(bag->options, name, parameter);
  }
  if (is_any<nn::MultiheadAttentionImpl>(module)) {
    return of_attention(name, parameter);
  }
  if (is_any<nn::TransformerImpl>(module) && parameter.dim() > 1) {
    return xavier_uniform(parameter);
  }
  if (is_any<nn::BilinearImpl>(module)) {
    return within_inverse_root(static_cast<double>(
        module.named_parameters(/*recurse=*/false)["weight"].size(1)));
  }
  if (const auto* prelu = dynamic_cast<const nn::PReLUImpl*>(&module)) {
    return InitRule::constant(prelu->options.init());
  }
  return of_recurrent(module, name);
}

std::optional<double> stock_buffer_value(const nn::Module& module,
                                         const std::string& name) {
  if (!has_running_statistics(module)) {
    return std::nullopt;
  }
  return name == "running_var" ? 1.0 : 0.0;
}

}  // namespace accordion
