// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/weight_plan.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

constexpr std::string_view kModel = "model/";

std::int64_t bytes_of(const TensorEntry& tensor) {
  return tensor.numel() * detail::safetensors_element_bytes(tensor.dtype);
}

[[noreturn]] void fail(const CheckpointReader& checkpoint,
                       const std::string& parameter, const std::string& what) {
  throw CheckpointError(fmt::format("[export] '{}', tensor 'model/{}': {}.",
                                    checkpoint.folder().string(), parameter,
                                    what));
}

/// One list for each file.
std::vector<std::vector<TensorEntry>> cut(std::vector<TensorEntry> tensors,
                                          std::int64_t max_shard_bytes) {
  std::vector<std::vector<TensorEntry>> files(1);
  std::int64_t bytes = 0;
  for (TensorEntry& tensor : tensors) {
    const std::int64_t more = bytes_of(tensor);
    if (!files.back().empty() && bytes + more > max_shard_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

std::string file_name(std::size_t file, std::size_t num_files) {
  return num_files == 1 ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors",
                                      file + 1, num_files);
}

/// Tensors that checkpoints of other programs may hold and no Llama needs.
bool is_computed(std::string_view parameter) {
  return parameter.find("rotary_emb.") != std::string_view::npos;
}

void check_nothing_else(const CheckpointReader& checkpoint,
                        std::span<const ParameterShape> parameters) {
  std::set<std::string_view> known;
  for (const ParameterShape& parameter : parameters) {
    known.insert(parameter.name);
  }
  const CheckpointIndex& index = checkpoint.index();
  for (const auto& [name, tensor] : index.tensors) {
    if (!name.starts_with(kModel)) {
      continue;
    }
    const std::string parameter = name.substr(kModel.size());
    const bool has_other_name =
        std::ranges::any_of(index.aliases, [&](const auto& alias) {
          return alias.second == parameter && known.contains(alias.first);
        });
    if (!known.contains(parameter) && !is_computed(parameter) &&
        !has_other_name) {
      fail(checkpoint, parameter,
           "the model that 'model/config.json' describes has no such "
           "parameter. Was the checkpoint saved with another configuration?");
    }
  }
}

}  // namespace

std::string WeightPlan::index_text() const {
  if (files.size() == 1) {
    return "";
  }
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const Tensor& tensor : tensors) {
    map[tensor.entry.name] = files[tensor.file].name;
  }
  const nlohmann::ordered_json index = {
      {"metadata", {{"total_size", tensor_bytes}}},
      {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

WeightPlan plan_weights(std::vector<TensorEntry> tensors,
                        std::int64_t max_shard_bytes) {
  auto lists = cut(std::move(tensors), max_shard_bytes);
  WeightPlan plan;
  for (std::size_t file = 0; file < lists.size(); ++file) {
    std::vector<TensorEntry>& list = lists[file];
    std::ranges::stable_sort(list, std::ranges::greater(), [](const auto& t) {
      return detail::safetensors_element_bytes(t.dtype);
    });
    PlannedFile planned{
        .name = file_name(file, lists.size()),
        .start = detail::safetensors_start(list, {{"format", "pt"}})};
    planned.bytes = static_cast<std::int64_t>(planned.start.size());
    for (TensorEntry& tensor : list) {
      planned.bytes += bytes_of(tensor);
      plan.tensor_bytes += bytes_of(tensor);
      plan.tensors.push_back({file, std::move(tensor)});
    }
    plan.files.push_back(std::move(planned));
  }
  return plan;
}

std::vector<TensorEntry> weights_of(const CheckpointReader& checkpoint,
                                    std::span<const ParameterShape> parameters,
                                    const std::string& dtype) {
  check_nothing_else(checkpoint, parameters);
  std::vector<TensorEntry> weights;
  for (const ParameterShape& parameter : parameters) {
    const StoredTensor* const stored =
        checkpoint.find(std::string(kModel) + parameter.name);
    if (stored == nullptr) {
      fail(checkpoint, parameter.name,
           "it is missing, but the model that 'model/config.json' describes "
           "has that parameter. Was the checkpoint saved with another "
           "configuration?");
    }
    if (stored->shape != parameter.shape) {
      fail(checkpoint, parameter.name,
           fmt::format("it has shape [{}], but the parameter that "
                       "'model/config.json' describes [{}]",
                       fmt::join(stored->shape, ", "),
                       fmt::join(parameter.shape, ", ")));
    }
    if (!dtype.empty() && dtype != stored->dtype &&
        detail::conversion_to_fp32(stored->dtype) == nullptr) {
      fail(checkpoint, parameter.name,
           fmt::format("its dtype {} cannot be converted to {}. Export with "
                       "--dtype stored",
                       stored->dtype, dtype));
    }
    weights.push_back({.name = parameter.name,
                       .dtype = dtype.empty() ? stored->dtype : dtype,
                       .shape = parameter.shape});
  }
  return weights;
}

}  // namespace accordion
