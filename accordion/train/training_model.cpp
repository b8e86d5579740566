// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/training_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "accordion/checkpoint/weight_source.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/nonfinite_output.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/models/generate.h"
#include "accordion/models/initialize.h"
#include "accordion/module/meta_init.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/train/config_options.h"

namespace accordion {
namespace {

std::span<float> elements(const at::Tensor& piece) {
  return {piece.data_ptr<float>(), static_cast<std::size_t>(piece.numel())};
}

at::Device device_of(const DeviceMesh& mesh) {
  const std::optional<int> cuda = mesh.world().cuda_device();
  return cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*cuda))
              : at::Device(at::kCPU);
}

/// Without memory: fully_shard gives each rank its pieces alone.
Unit<Llama> model_on_meta(const TrainConfig& config, const LlamaConfig& model) {
  const MetaInit meta;
  Unit<Llama> result(model);
  result->set_loss_chunk(config.memory.chunked_loss_tokens);
  result->set_selective_recomputation(config.memory.activation_checkpointing ==
                                      "selective");
  return result;
}

/// Fresh values; zeros where weights are read afterwards.
InitOptions initial_values(const TrainConfig& config, double deviation) {
  const bool fresh = config.model.init.empty();
  return {.seed = static_cast<std::uint64_t>(config.run.seed),
          .initial_value =
              [=](const std::string& name,
                  const at::Tensor& parameter) -> std::optional<InitialValue> {
            return fresh ? initial_rule(name, parameter.sizes(), deviation)
                         : InitRule::constant(0);
          }};
}

/// Each rank reads the ranges that it owns, and no others.
void fill_from(torch::nn::Module& module, const std::string& path) {
  const WeightSource source = WeightSource::open(path);
  for (const LocalParameter& local : local_parameters(module)) {
    const at::Tensor read = local.piece.is_cpu()
                                ? local.piece
                                : at::empty(local.piece.sizes(), at::kFloat);
    source.read(local.name, local.global_shape, local.begin, elements(read));
    if (!read.is_same(local.piece)) {
      local.piece.copy_(read);
    }
  }
}

std::string quoted(const std::string& unit) {
  return unit.empty() ? "the root" : fmt::format("'{}'", unit);
}

/// A tensor that owns the tokens: backward reads them again (the gradient of
/// the embedding), when the batch may be gone. To a device they are copied from
/// pinned memory, which the host does not wait for; LibTorch's allocator keeps
/// it until that is done.
at::Tensor as_tensor(std::vector<std::int64_t> tokens, std::int64_t seq_len,
                     at::Device device) {
  const auto owned =
      std::make_shared<std::vector<std::int64_t>>(std::move(tokens));
  const auto rows = static_cast<std::int64_t>(owned->size()) / seq_len;
  const at::Tensor on_host = at::from_blob(
      owned->data(), {rows, seq_len}, [owned](void*) {}, at::kLong);
  return device.is_cpu()
             ? on_host
             : on_host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace

LlamaConfig open_model_config(const TrainConfig& config) {
  const LlamaConfig model = LlamaConfig::from_file(config.model.config);
  if (model.max_position_embeddings < config.data.seq_len) {
    throw ConfigError(fmt::format(
        "[train] data.seq_len is {}, but '{}' has max_position_embeddings {}. "
        "Lower one or raise the other.",
        config.data.seq_len, config.model.config,
        model.max_position_embeddings));
  }
  return model;
}

TrainingModel::TrainingModel(const LlamaConfig& model,
                             const TrainConfig& config, const DeviceMesh& mesh)
    : seq_len_(config.data.seq_len),
      device_(device_of(mesh)),
      model_(model_on_meta(config, model)) {
  FsdpOptions options = fsdp_options(config);
  options.init = initial_values(config, model.initializer_range);
  fully_shard(model_, mesh, options);
  if (!config.model.init.empty()) {
    fill_from(*model_, config.model.init);
  }
}

LlamaOutput TrainingModel::loss(Batch batch, double divisor) {
  return loss(as_tensor(std::move(batch.inputs), seq_len_, device_),
              as_tensor(std::move(batch.targets), seq_len_, device_), divisor);
}

LlamaOutput TrainingModel::loss(const at::Tensor& inputs,
                                const at::Tensor& targets, double divisor) {
  return model_(inputs, targets, divisor);
}

std::string TrainingModel::describe_nonfinite(
    const std::function<void()>& forward,
    const std::optional<std::string>& left_out) {
  if (const auto output = first_nonfinite_output(*model_, forward)) {
    return fmt::format(
        "the first unit whose output is not finite is {}, on rank {}",
        quoted(output->unit), output->rank);
  }
  const auto unit = left_out ? left_out : first_nonfinite_unit(model_);
  if (!unit) {
    return "each output and gradient is finite, but the gradients' squares "
           "overflow";
  }
  return fmt::format(
      "each output is finite, and the first unit whose gradient is not is {}",
      quoted(*unit));
}

std::string TrainingModel::first_nonfinite_gradient() {
  const auto unit = first_nonfinite_unit(model_);
  return unit ? quoted(*unit) : "no unit: squares overflow";
}

std::string TrainingModel::sample(const TrainConfig& config,
                                  const Tokenizer& tokenizer) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> prompt = tokenizer.encode(config.sample.prompt);
  if (const auto bos = tokenizer.bos()) {
    prompt.insert(prompt.begin(), *bos);
  }
  const auto prompt_end = static_cast<std::ptrdiff_t>(prompt.size());
  auto tokens = generate(
      [&](const at::Tensor& context) {
        // A model may have more ids than the tokenizer.
        return model_(context.to(device_))
            .logits.narrow(-1, 0, tokenizer.vocab_size());
      },
      std::move(prompt),
      {.num_tokens = config.sample.length,
       .temperature = config.sample.temperature,
       .seed = static_cast<std::uint64_t>(config.run.seed),
       .max_context = seq_len_});
  if (const auto eos = tokenizer.eos()) {
    tokens.erase(std::find(tokens.begin() + prompt_end, tokens.end(), *eos),
                 tokens.end());
  }
  return tokenizer.decode(tokens);
}

}  // namespace accordion
