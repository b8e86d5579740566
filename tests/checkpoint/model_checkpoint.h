// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/safetensors_header.h"
#include "accordion/checkpoint/shard_file.h"
#include "accordion/checkpoint/weight_plan.h"

namespace accordion::testing {

/// A checkpoint of a model, as a run of `world_size` ranks leaves it.
struct ModelCheckpoint {
  std::vector<ParameterShape> parameters = {};
  int world_size = 3;
  std::string dtype = "F32";
  CheckpointValues values = {};
  std::map<std::string, std::string, std::less<>> aliases = {};
};

/// Tells of which parameter an element is, and which one; exact in fp32.
inline float origin(const std::string& name, std::int64_t element) {
  return static_cast<float>(name.size() % 8 * 16 + name[name.size() / 2] % 16) +
         static_cast<float>(element % 128) * 128;
}

/// Fresh elements of a parameter.
using ElementsOf =
    std::function<std::vector<float>(const ParameterShape& parameter)>;

inline std::vector<float> origins(const ParameterShape& parameter) {
  std::size_t numel = 1;
  for (const std::int64_t dim : parameter.shape) {
    numel *= static_cast<std::size_t>(dim);
  }
  std::vector<float> elements(numel);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = origin(parameter.name, static_cast<std::int64_t>(i));
  }
  return elements;
}

/// Writes it. A rank saves a part of each tensor that need not end at a row.
inline void write_checkpoint(const std::filesystem::path& path,
                             const ModelCheckpoint& model,
                             const ElementsOf& elements_of = origins) {
  const auto bytes =
      static_cast<std::size_t>(detail::safetensors_element_bytes(model.dtype));
  std::vector<std::vector<std::byte>> tensors;
  for (const ParameterShape& parameter : model.parameters) {
    const std::vector<float> elements = elements_of(parameter);
    tensors.emplace_back(elements.size() * bytes);
    detail::conversion_from_fp32(model.dtype)(
        elements.data(), tensors.back().data(),
        static_cast<std::int64_t>(elements.size()));
  }
  begin_checkpoint(path);
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < model.world_size; ++rank) {
    std::vector<TensorRange> ranges;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t numel = tensors[i].size() / bytes;
      const auto world = static_cast<std::size_t>(model.world_size);
      const std::size_t part = (numel + world - 1) / world;
      const std::size_t begin =
          std::min(numel, part * static_cast<std::size_t>(rank));
      const std::size_t end = std::min(numel, begin + part);
      ranges.push_back(
          {.name = "model/" + model.parameters[i].name,
           .dtype = model.dtype,
           .shape = model.parameters[i].shape,
           .begin = static_cast<std::int64_t>(begin),
           .end = static_cast<std::int64_t>(end),
           .bytes = std::span(tensors[i])
                        .subspan(begin * bytes, (end - begin) * bytes)});
    }
    reports.push_back(write_shard(unfinished_folder(path),
                                  shard_file_name(rank, model.world_size),
                                  ranges));
  }
  CheckpointIndex index;
  index.world_size = model.world_size;
  index.values = model.values;
  index.aliases = model.aliases;
  add_shards(index, reports);
  commit_checkpoint(path, index);
}

}  // namespace accordion::testing
