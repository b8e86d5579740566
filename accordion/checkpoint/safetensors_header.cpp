// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/checked_json.h"

namespace accordion::detail {
namespace {

using nlohmann::json;

/// The header, a tensor, its shape.
constexpr int kMaxDepth = 3;
/// Data starts at a multiple of this many bytes, spaces filling the header.
constexpr std::size_t kAlignment = 64;

/// What the checks below need to say where a fault is.
struct Place {
  const std::string& file;
  const std::string& tensor;
};

[[noreturn]] void fail(const Place& place, const std::string& what) {
  throw CheckpointError(fmt::format(
      "[safetensors] '{}', tensor '{}': {}. The file is damaged or was not "
      "written completely; write or download it again.",
      place.file, shown(place.tensor), what));
}

std::int64_t non_negative(const json& value, const char* what,
                          const Place& place) {
  constexpr std::uint64_t kMax = INT64_MAX;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) {
    fail(place, fmt::format("{} is {}, not a non-negative integer", what,
                            shown_json(value)));
  }
  return value.get<std::int64_t>();
}

const json& member(const json& entry, const char* key, const Place& place) {
  if (!entry.is_object() || !entry.contains(key)) {
    fail(place, fmt::format("the header gives no {}", key));
  }
  return entry.at(key);
}

std::vector<std::int64_t> parse_shape(const json& value, const Place& place) {
  if (!value.is_array()) {
    fail(place, fmt::format("shape is {}, not an array", shown_json(value)));
  }
  std::vector<std::int64_t> shape;
  for (const json& dim : value) {
    shape.push_back(non_negative(dim, "a dim", place));
  }
  return shape;
}

/// Bytes that shape and dtype ask for; a fault where 63 bits do not hold it.
std::int64_t expected_bytes(const TensorEntry& tensor, const Place& place) {
  const std::int64_t element = safetensors_element_bytes(tensor.dtype);
  if (element == 0) {
    fail(place, fmt::format("dtype '{}' is not one of the format's",
                            shown(tensor.dtype)));
  }
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) {
    return 0;
  }
  std::int64_t bytes = element;
  for (const std::int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      fail(place, fmt::format("shape {} has more elements than 63 bits count",
                              shown(fmt::format(
                                  "[{}]", fmt::join(tensor.shape, ", ")))));
    }
  }
  return bytes;
}

TensorEntry parse_tensor(const std::string& name, const json& value,
                         std::int64_t data_begin, std::int64_t data_bytes,
                         const std::string& file) {
  const Place place{file, name};
  TensorEntry tensor;
  tensor.name = name;
  const json& dtype = member(value, "dtype", place);
  tensor.dtype = dtype.is_string() ? dtype.get<std::string>() : dtype.dump();
  tensor.shape = parse_shape(member(value, "shape", place), place);
  const json& offsets = member(value, "data_offsets", place);
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(place, "data_offsets is not an array of two");
  }
  const std::int64_t begin = non_negative(offsets[0], "an offset", place);
  const std::int64_t end = non_negative(offsets[1], "an offset", place);
  if (begin > end || end > data_bytes) {
    fail(place, fmt::format("bytes [{}, {}) do not lie in the {} bytes of data",
                            begin, end, data_bytes));
  }
  if (const std::int64_t expected = expected_bytes(tensor, place);
      expected != end - begin) {
    fail(place,
         fmt::format("{} {} needs {} bytes but data_offsets give {}",
                     tensor.dtype,
                     shown(fmt::format("[{}]", fmt::join(tensor.shape, ", "))),
                     expected, end - begin));
  }
  tensor.begin = data_begin + begin;
  tensor.end = data_begin + end;
  return tensor;
}

std::map<std::string, std::string> parse_metadata(const json& value,
                                                  const std::string& file) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(
        fmt::format("[safetensors] '{}': __metadata__{}; the format wants "
                    "strings by name.",
                    file, what));
  };
  if (!value.is_object()) {
    fail(fmt::format(" is {}", shown_json(value)));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      fail(fmt::format(" '{}' is {}", shown(key), shown_json(text)));
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

void check_overlap(const std::vector<TensorEntry>& tensors,
                   const std::string& file) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].begin < tensors[i - 1].end) {
      fail({file, tensors[i].name},
           fmt::format("its bytes overlap those of '{}'",
                       shown(tensors[i - 1].name)));
    }
  }
}

}  // namespace

std::int64_t numel_of(std::span<const std::int64_t> shape) {
  // First, as the product of the others may be any number.
  if (std::ranges::find(shape, 0) != shape.end()) {
    return 0;
  }
  std::int64_t numel = 1;
  for (const std::int64_t dim : shape) {
    numel *= dim;
  }
  return numel;
}

std::int64_t safetensors_element_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 15>
      kSizes = {{{"F64", 8},
                 {"F32", 4},
                 {"F16", 2},
                 {"BF16", 2},
                 {"I64", 8},
                 {"I32", 4},
                 {"I16", 2},
                 {"I8", 1},
                 {"U64", 8},
                 {"U32", 4},
                 {"U16", 2},
                 {"U8", 1},
                 {"BOOL", 1},
                 {"F8_E4M3", 1},
                 {"F8_E5M2", 1}}};
  for (const auto& [name, bytes] : kSizes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return 0;
}

std::string safetensors_start(
    std::span<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::int64_t offset = 0;
  for (TensorEntry& tensor : tensors) {
    tensor.begin = offset;
    offset += tensor.numel() * safetensors_element_bytes(tensor.dtype);
    tensor.end = offset;
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  const std::size_t used = kLengthBytes + text.size();
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string start(sizeof(length), '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  start += text;
  for (TensorEntry& tensor : tensors) {
    tensor.begin += static_cast<std::int64_t>(start.size());
    tensor.end += static_cast<std::int64_t>(start.size());
  }
  return start;
}

SafetensorsHeader parse_safetensors_header(std::string_view text,
                                           std::int64_t file_bytes,
                                           const std::string& file) {
  const json object = parse_checked_json(text, file, kMaxDepth);
  const std::int64_t data_begin =
      kLengthBytes + static_cast<std::int64_t>(text.size());
  SafetensorsHeader header;
  for (const auto& [name, value] : object.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(value, file);
    } else {
      header.tensors.push_back(
          parse_tensor(name, value, data_begin, file_bytes - data_begin, file));
    }
  }
  std::ranges::sort(header.tensors, [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_overlap(header.tensors, file);
  return header;
}

}  // namespace accordion::detail
