// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "accordion/comm/device_mesh.h"
#include "accordion/data/batch_sampler.h"
#include "accordion/data/tokenizer.h"
#include "accordion/models/llama.h"
#include "accordion/models/llama_config.h"
#include "accordion/module/unit.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The configuration of a run's model.
///
/// Throws ConfigError for a model that cannot be, or whose positions do not
///        hold what the run feeds it
LlamaConfig open_model_config(const TrainConfig& config);

/// The model of a run, sharded and filled.
class TrainingModel {
 public:
  /// Throws CheckpointError for weights that do not fit; what fully_shard
  /// throws Comm   that of fully_shard
  TrainingModel(const LlamaConfig& model, const TrainConfig& config,
                const DeviceMesh& mesh);

  /// Cross-entropy of a batch: its sum over target tokens, over `divisor`.
  LlamaOutput loss(Batch batch, double divisor);

  /// The same for tokens and targets [batch, seq_len] of int64, on meta where
  /// the model is.
  LlamaOutput loss(const at::Tensor& inputs, const at::Tensor& targets,
                   double divisor);

  /// sample.prompt and its continuation, up to where the model ends the
  /// document; the same text on every rank.
  std::string sample(const TrainConfig& config, const Tokenizer& tokenizer);

  /// Why the norm of the gradients is not finite, in words, the same on every
  /// rank. `forward` runs the forward passes that led to them again;
  /// `left_out` is the unit at fault where steps were taken in backward, and
  /// gradients are gone.
  ///
  /// Comm  that of first_nonfinite_output and first_nonfinite_unit
  std::string describe_nonfinite(
      const std::function<void()>& forward,
      const std::optional<std::string>& left_out = std::nullopt);

  /// "the root", or the unit in quotes, where backward first met a gradient
  /// that is not finite.
  ///
  /// Comm  that of first_nonfinite_unit
  std::string first_nonfinite_gradient();

  torch::nn::Module& module() { return *model_; }

 private:
  std::int64_t seq_len_;
  at::Device device_;  // of the mesh; not where a dry run has none
  Unit<Llama> model_;
};

}  // namespace accordion
