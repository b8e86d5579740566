// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/tensor_source.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

TensorInfo make_info(std::string name, std::string dtype,
                     std::vector<std::int64_t> shape, std::int64_t numel) {
  const std::int64_t bytes = numel * detail::safetensors_element_bytes(dtype);
  return {std::move(name), std::move(dtype), std::move(shape), numel, bytes};
}

std::vector<TensorInfo> tensors_of(const CheckpointReader& checkpoint) {
  std::vector<TensorInfo> tensors;
  for (const auto& [name, tensor] : checkpoint.index().tensors) {
    tensors.push_back(
        make_info(name, tensor.dtype, tensor.shape, tensor.numel()));
  }
  return tensors;
}

std::vector<TensorInfo> tensors_of(const WeightSource& weights) {
  std::vector<TensorInfo> tensors;
  for (const std::string& name : weights.names()) {
    const TensorEntry& tensor = weights.find(name);
    tensors.push_back(
        make_info(name, tensor.dtype, tensor.shape, tensor.numel()));
  }
  return tensors;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool holds_weights(const fs::path& path) {
  std::error_code ignored;
  return !fs::is_directory(path, ignored) ||
         is_there(path / "model.safetensors") ||
         is_there(path / "model.safetensors.index.json");
}

}  // namespace

TensorSource::TensorSource(fs::path path, Content content)
    : path_(std::move(path)), content_(std::move(content)) {
  tensors_ =
      std::visit([](const auto& held) { return tensors_of(held); }, content_);
}

TensorSource TensorSource::open(const fs::path& path) {
  if (!is_there(path)) {
    throw CheckpointError(fmt::format(
        "[TensorSource::open] there is nothing at '{}'. Give a checkpoint, a "
        "run folder, a .safetensors file or a Hugging Face folder.",
        path.string()));
  }
  if (is_there(index_file(path))) {
    return {path, CheckpointReader(path)};
  }
  if (holds_weights(path)) {
    return {path, WeightSource::open(path)};
  }
  const auto found = checkpoints_below(path);
  if (!found.empty()) {
    const fs::path& newest = found.back().path;
    TensorSource source(newest, CheckpointReader(newest));
    source.newest_of_ = static_cast<std::int64_t>(found.size());
    return source;
  }
  throw CheckpointError(fmt::format(
      "[TensorSource::open] the folder '{}' holds no complete checkpoint "
      "(index.json), neither itself nor as a run (checkpoints/step-…), and no "
      "Hugging Face weights (model.safetensors or its index). Give one of "
      "these, or a .safetensors file.",
      path.string()));
}

CheckpointReader* TensorSource::checkpoint() {
  return std::get_if<CheckpointReader>(&content_);
}

const CheckpointReader* TensorSource::checkpoint() const {
  return std::get_if<CheckpointReader>(&content_);
}

const WeightSource* TensorSource::weights() const {
  return std::get_if<WeightSource>(&content_);
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const CheckpointReader* const reader = checkpoint();
  const std::string_view stored =
      reader == nullptr ? name : reader->stored_name(name);
  const auto found =
      std::ranges::lower_bound(tensors_, stored, {}, &TensorInfo::name);
  return found == tensors_.end() || found->name != stored ? nullptr : &*found;
}

std::vector<TensorPiece> TensorSource::pieces(const TensorInfo& tensor) const {
  if (const WeightSource* held = weights()) {
    return {{.rank = std::nullopt,
             .file = held->file_of(tensor.name).path().filename().string(),
             .begin = 0,
             .end = tensor.numel,
             .offset = held->find(tensor.name).begin}};
  }
  const CheckpointIndex& index = checkpoint()->index();
  std::vector<TensorPiece> pieces;
  for (const StoredRange& range : index.tensors.at(tensor.name).ranges) {
    const std::string& file =
        index.files[static_cast<std::size_t>(range.file)].name;
    pieces.push_back({.rank = rank_of_shard(file, index.world_size),
                      .file = file,
                      .begin = range.begin,
                      .end = range.end,
                      .offset = range.offset});
  }
  return pieces;
}

void TensorSource::read(const TensorInfo& tensor, std::int64_t begin,
                        std::span<std::byte> into) {
  if (CheckpointReader* reader = checkpoint()) {
    reader->read(tensor.name, begin, into);
    return;
  }
  const WeightSource& held = *weights();
  held.file_of(tensor.name).read_stored(held.find(tensor.name), begin, into);
}

std::optional<int> rank_of_shard(std::string_view file_name, int world_size) {
  constexpr std::string_view kStart = "shard-";
  int rank = -1;
  if (file_name.starts_with(kStart)) {
    (void)std::from_chars(file_name.data() + kStart.size(),
                          file_name.data() + file_name.size(), rank);
  }
  const bool is_one = rank >= 0 && rank < world_size &&
                      file_name == shard_file_name(rank, world_size);
  return is_one ? std::optional(rank) : std::nullopt;
}

}  // namespace accordion
