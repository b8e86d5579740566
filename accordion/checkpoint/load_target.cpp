// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/load_target.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accordion/checkpoint/tensor_dtype.h"
#include "accordion/fsdp/sharded_module.h"

namespace accordion::detail {

namespace {

constexpr std::string_view kModel = "model/";

/// Names in errors; more are counted.
constexpr std::size_t kMaxNamed = 8;

using Names = std::set<std::string, std::less<>>;

std::string some_of(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMaxNamed);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(count);
  std::string text = fmt::format("'{}'", fmt::join(names.begin(), end, "', '"));
  if (count < names.size()) {
    text += fmt::format(" and {} more", names.size() - count);
  }
  return text;
}

LoadTarget whole(const std::string& name, const at::Tensor& tensor) {
  return {std::string(kModel) + name, tensor.sizes().vec(), 0,
          tensor.detach().view({-1})};
}

/// Everything of the module that this rank holds, saved or not.
std::vector<LoadTarget> wanted(const torch::nn::Module& root) {
  std::vector<LoadTarget> targets;
  for (const LocalParameter& local : local_parameters(root)) {
    targets.push_back({std::string(kModel) + local.name, local.global_shape,
                       local.begin, local.piece});
  }
  for (const auto& [name, tensor] : ignored_parameters(root)) {
    targets.push_back(whole(name, tensor));
  }
  for (const auto& item : root.named_buffers()) {
    if (item.value().defined()) {
      targets.push_back(whole(item.key(), item.value()));
    }
  }
  return targets;
}

/// Names of the module, and those under which the checkpoint has them.
Names known_names(const torch::nn::Module& root, const CheckpointReader& reader,
                  const std::vector<LoadTarget>& targets) {
  Names known;
  for (const auto& [alias, name] : parameter_aliases(root)) {
    known.insert(alias);
  }
  for (const LoadTarget& target : targets) {
    const std::string name = target.name.substr(kModel.size());
    known.insert(name);
    const auto alias = reader.index().aliases.find(name);
    if (alias != reader.index().aliases.end()) {
      known.insert(alias->second);
    }
  }
  return known;
}

void check_names(const std::string& place, const LoadOptions& options,
                 const LoadResult& result) {
  if (!result.missing.empty() && !options.allow_missing) {
    throw CheckpointError(fmt::format(
        "[load_checkpoint] '{}' lacks {} parameters or buffers of the module: "
        "{}. Load into the model that was saved, or set "
        "LoadOptions::allow_missing to let them keep their values.",
        place, result.missing.size(), some_of(result.missing)));
  }
  if (!result.unexpected.empty() && !options.allow_unexpected) {
    throw CheckpointError(fmt::format(
        "[load_checkpoint] '{}' holds {} parameters or buffers that the module "
        "lacks: {}. Load into the model that was saved, or set "
        "LoadOptions::allow_unexpected to leave them out.",
        place, result.unexpected.size(), some_of(result.unexpected)));
  }
}

}  // namespace

void check_target(const CheckpointReader& reader, const LoadTarget& target) {
  const StoredTensor& stored = *reader.find(target.name);
  const auto fail = [&](const std::string& fault) {
    throw CheckpointError(
        fmt::format("[load_checkpoint] '{}', tensor '{}': {}.",
                    reader.folder().string(), target.name, fault));
  };
  if (stored.shape != target.shape) {
    fail(fmt::format("saved with shape [{}], but the module has [{}]",
                     fmt::join(stored.shape, ", "),
                     fmt::join(target.shape, ", ")));
  }
  const auto saved = scalar_type_of(stored.dtype);
  const auto into = target.into.scalar_type();
  if (saved != into &&
      !(c10::isFloatingType(saved) && c10::isFloatingType(into))) {
    fail(fmt::format("saved as {}, which is not converted to {}", stored.dtype,
                     c10::toString(into)));
  }
}

void read_target(CheckpointReader& reader, const LoadTarget& target) {
  constexpr std::int64_t kBufferElements = 1 << 17;
  const auto bytes_of = [](const at::Tensor& tensor) {
    return std::span(static_cast<std::byte*>(tensor.mutable_data_ptr()),
                     tensor.nbytes());
  };
  const auto stored = scalar_type_of(reader.find(target.name)->dtype);
  const at::Tensor& into = target.into;
  if (into.is_cpu() && into.is_contiguous() && into.scalar_type() == stored) {
    return reader.read(target.name, target.begin, bytes_of(into));
  }
  const at::Tensor buffer = at::empty({std::min(kBufferElements, into.numel())},
                                      at::TensorOptions().dtype(stored));
  for (std::int64_t done = 0; done < into.numel();) {
    const at::Tensor part =
        buffer.narrow(0, 0, std::min(buffer.numel(), into.numel() - done));
    reader.read(target.name, target.begin + done, bytes_of(part));
    into.narrow(0, done, part.numel()).copy_(part);
    done += part.numel();
  }
}

std::vector<LoadTarget> model_targets(const torch::nn::Module& root,
                                      const CheckpointReader& reader,
                                      const LoadOptions& options,
                                      LoadResult& result) {
  std::vector<LoadTarget> targets = wanted(root);
  const Names known = known_names(root, reader, targets);
  std::erase_if(targets, [&](const LoadTarget& target) {
    if (reader.find(target.name) != nullptr) {
      return false;
    }
    result.missing.push_back(target.name.substr(kModel.size()));
    return true;
  });
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (name.starts_with(kModel) &&
        !known.contains(std::string_view(name).substr(kModel.size()))) {
      result.unexpected.push_back(name.substr(kModel.size()));
    }
  }
  check_names(reader.folder().string(), options, result);
  for (const LoadTarget& target : targets) {
    check_target(reader, target);
  }
  return targets;
}

}  // namespace accordion::detail
