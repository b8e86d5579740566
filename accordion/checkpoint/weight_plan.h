// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/safetensors.h"

namespace accordion {

/// A parameter that a model has.
struct ParameterShape {
  std::string name;  ///< its FQN, which is Hugging Face's name
  std::vector<std::int64_t> shape;
};

/// A file of weights: its start, followed by the tensors.
struct PlannedFile {
  std::string name;
  std::string start;  ///< length and header
  std::int64_t bytes = 0;
};

/// Where every tensor of a Hugging Face folder will lie, known before the first
/// byte is written: so that any writer can put any rows in place.
struct WeightPlan {
  struct Tensor {
    std::size_t file = 0;  ///< of `files`
    TensorEntry entry;     ///< with its place in that file
  };
  std::vector<PlannedFile> files;
  std::vector<Tensor> tensors;  ///< in the order of files and of their bytes
  std::int64_t tensor_bytes = 0;

  /// model.safetensors.index.json; "" where one file holds all.
  [[nodiscard]] std::string index_text() const;
};

/// Lays tensors out in their order: in model.safetensors, or where they have
/// more than `max_shard_bytes` together in files of at most so many, a larger
/// tensor alone in its own. Within a file wider dtypes come first, so that each
/// element is aligned.
WeightPlan plan_weights(std::vector<TensorEntry> tensors,
                        std::int64_t max_shard_bytes);

/// The tensors of a checkpoint that make up a model, in `dtype`, or as stored
/// where that is empty. What a model computes by itself, such as rotary
/// frequencies, and a second name of a shared parameter are left out.
///
/// Throws CheckpointError that names a parameter that the checkpoint lacks, or
///        has in another shape or a dtype that cannot be converted, or a tensor
///        that the model has no parameter for
std::vector<TensorEntry> weights_of(const CheckpointReader& checkpoint,
                                    std::span<const ParameterShape> parameters,
                                    const std::string& dtype);

}  // namespace accordion
