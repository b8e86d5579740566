// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/weight_source.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/checked_json.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Metadata may nest; nothing that is read does.
constexpr int kMaxIndexDepth = 16;

/// Tensor name to file name, from model.safetensors.index.json.
std::map<std::string, std::string> read_index(const fs::path& path) {
  // Not a folder or a pipe, which cannot be read or may never end.
  if (!fs::is_regular_file(path)) {
    throw CheckpointError(
        fmt::format("[WeightSource::open] '{}' is not a file.", path.string()));
  }
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const json index =
      detail::parse_checked_json(text, path.string(), kMaxIndexDepth);
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw CheckpointError(fmt::format(
        "[WeightSource::open] '{}' has no \"weight_map\" object: it "
        "is not an index of safetensors files.",
        path.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file_name] : index["weight_map"].items()) {
    if (!file_name.is_string() ||
        !detail::is_file_name(file_name.get<std::string>())) {
      throw CheckpointError(fmt::format(
          "[WeightSource::open] '{}', tensor '{}': {} is no name of "
          "a file in the same folder.",
          path.string(), detail::shown(name), detail::shown_json(file_name)));
    }
    files.emplace(name, file_name.get<std::string>());
  }
  return files;
}

/// Length of what two names share at their ends, where layers differ least.
std::size_t likeness(std::string_view a, std::string_view b) {
  const auto [first, ignored] =
      std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  const auto [front, also_ignored] =
      std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(first - a.rbegin()) +
         static_cast<std::size_t>(front - a.begin());
}

}  // namespace

WeightSource WeightSource::open(const fs::path& path) {
  WeightSource source;
  source.path_ = path;
  const fs::path single = path / "model.safetensors";
  const fs::path index = path / "model.safetensors.index.json";
  if (!fs::is_directory(path)) {
    source.add_file(path);
  } else if (fs::exists(index)) {
    source.add_indexed(index);
  } else if (fs::exists(single)) {
    source.add_file(single);
  } else {
    throw CheckpointError(fmt::format(
        "[WeightSource::open] the folder '{}' holds neither model.safetensors "
        "nor model.safetensors.index.json. Give a Hugging Face folder or a "
        ".safetensors file; convert pickled weights first.",
        path.string()));
  }
  return source;
}

void WeightSource::add_file(const fs::path& path) {
  files_.emplace_back(path);
  const std::size_t file = files_.size() - 1;
  for (const TensorEntry& tensor : files_.back().tensors()) {
    const auto [position, added] =
        locations_.emplace(tensor.name, Location{file, &tensor});
    if (!added) {
      throw CheckpointError(fmt::format(
          "[WeightSource::open] tensor '{}' is both in '{}' and in '{}'.",
          tensor.name, files_[position->second.file].path().string(),
          path.string()));
    }
  }
}

void WeightSource::add_indexed(const fs::path& index) {
  const auto file_of = read_index(index);
  std::set<std::string> file_names;
  for (const auto& [name, file_name] : file_of) {
    file_names.insert(file_name);
  }
  files_.reserve(file_names.size());
  for (const std::string& file_name : file_names) {
    add_file(index.parent_path() / file_name);
  }
  for (const auto& [name, file_name] : file_of) {
    const auto found = locations_.find(name);
    if (found == locations_.end() ||
        files_[found->second.file].path().filename() != file_name) {
      throw CheckpointError(
          fmt::format("[WeightSource::open] '{}' says that tensor '{}' is in "
                      "'{}', where it "
                      "is not. The folder is incomplete or mixes two models.",
                      index.string(), name, file_name));
    }
  }
}

std::vector<std::string> WeightSource::names() const {
  std::vector<std::string> result;
  for (const auto& [name, location] : locations_) {
    result.push_back(name);
  }
  return result;
}

bool WeightSource::contains(std::string_view name) const {
  return locations_.contains(name);
}

const WeightSource::Location& WeightSource::locate(
    std::string_view name) const {
  const auto found = locations_.find(name);
  if (found != locations_.end()) {
    return found->second;
  }
  std::vector<std::string> near = names();
  const auto closer = [name](const std::string& a, const std::string& b) {
    return likeness(a, name) > likeness(b, name);
  };
  const auto count = std::min<std::size_t>(3, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<long>(count),
                    near.end(), closer);
  near.resize(count);
  throw CheckpointError(fmt::format(
      "[WeightSource] '{}' holds no tensor '{}'. It holds {} others; nearest: "
      "'{}'.",
      path_.string(), name, locations_.size(), fmt::join(near, "', '")));
}

const TensorEntry& WeightSource::find(std::string_view name) const {
  return *locate(name).tensor;
}

const SafetensorsFile& WeightSource::file_of(std::string_view name) const {
  return files_[locate(name).file];
}

void WeightSource::read(std::string_view name,
                        std::span<const std::int64_t> shape, std::int64_t begin,
                        std::span<float> into) const {
  const Location& location = locate(name);
  if (!std::ranges::equal(location.tensor->shape, shape)) {
    throw CheckpointError(fmt::format(
        "[WeightSource] '{}': tensor '{}' has shape [{}], but the model wants "
        "[{}]. The weights belong to another configuration.",
        files_[location.file].path().string(), name,
        fmt::join(location.tensor->shape, ", "), fmt::join(shape, ", ")));
  }
  files_[location.file].read(*location.tensor, begin, into);
}

}  // namespace accordion
