// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checked_json.h"
#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/checkpoint/checkpoint_index_format.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

using nlohmann::json;

/// Where a fault is: the index, and what in it.
struct Place {
  const std::string& file;
  std::string what;
};

[[noreturn]] void fail(const Place& place, const std::string& fault) {
  throw CheckpointError(
      fmt::format("[checkpoint] '{}', {}: {}. The checkpoint is damaged or was "
                  "made by another program; use another one.",
                  place.file, place.what, fault));
}

/// Everything but the last two lines, whose checksum they give.
void verify_own_checksum(std::string_view text, const std::string& file) {
  const Place place{file, "last line"};
  const std::size_t at = text.rfind(detail::kChecksumLine);
  if (at == std::string_view::npos) {
    fail(place, "there is no checksum");
  }
  const std::string expected = fmt::format(
      "{}{}\"\n}}\n", detail::kChecksumLine,
      checksum_text(checksum_of(std::as_bytes(std::span(text.substr(0, at))))));
  if (text.substr(at) != expected) {
    fail(place, "the checksum is not that of the lines before it");
  }
}

const json& member(const json& object, const char* key, const Place& place) {
  if (!object.is_object() || !object.contains(key)) {
    fail(place, fmt::format("there is no \"{}\"", key));
  }
  return object.at(key);
}

const json& object_at(const json& object, const char* key, const Place& place) {
  const json& found = member(object, key, place);
  if (!found.is_object()) {
    fail(place, fmt::format("\"{}\" is not an object", key));
  }
  return found;
}

const json& array_at(const json& object, const char* key, const Place& place) {
  const json& found = member(object, key, place);
  if (!found.is_array()) {
    fail(place, fmt::format("\"{}\" is not an array", key));
  }
  return found;
}

std::string text_at(const json& object, const char* key, const Place& place) {
  const json& found = member(object, key, place);
  if (!found.is_string()) {
    fail(place, fmt::format("\"{}\" is not a text", key));
  }
  return found.get<std::string>();
}

std::int64_t count_of(const json& value, const char* what, const Place& place) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) {
    fail(place, fmt::format("{} is {}, not a non-negative integer", what,
                            detail::shown_json(value)));
  }
  return value.get<std::int64_t>();
}

CheckpointValues parse_values(const json& object, const std::string& file) {
  CheckpointValues values;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number_integer() &&
        (!value.is_number_unsigned() ||
         value.get<std::uint64_t>() <= INT64_MAX)) {
      values.emplace(name, value.get<std::int64_t>());
    } else if (value.is_number_float() && std::isfinite(value.get<double>())) {
      values.emplace(name, value.get<double>());
    } else if (value.is_string()) {
      values.emplace(name, value.get<std::string>());
    } else {
      fail({file, fmt::format("value '{}'", detail::shown(name))},
           fmt::format("{} is no integer, finite number or text",
                       detail::shown_json(value)));
    }
  }
  return values;
}

std::uint64_t parse_checksum(const json& value, const Place& place) {
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump();
  std::uint64_t checksum = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
  if (error != std::errc() || end != text.data() + text.size() ||
      text.size() != 16) {
    fail(place,
         fmt::format("'{}' is no checksum of 16 digits", detail::shown(text)));
  }
  return checksum;
}

CheckpointFile parse_file(const json& value, std::size_t number,
                          const std::string& index) {
  Place place{index, fmt::format("file {}", number)};
  CheckpointFile file;
  file.name = text_at(value, "name", place);
  place.what += fmt::format(" '{}'", detail::shown(file.name));
  if (!detail::is_file_name(file.name)) {
    fail(place, "it is no name of a file in the checkpoint's folder");
  }
  file.bytes = count_of(member(value, "bytes", place), "\"bytes\"", place);
  for (const json& checksum : array_at(value, "xxh3_64", place)) {
    file.checksums.push_back(parse_checksum(checksum, place));
  }
  const std::int64_t blocks = file.bytes / kChecksumBlockBytes +
                              (file.bytes % kChecksumBlockBytes == 0 ? 0 : 1);
  if (static_cast<std::int64_t>(file.checksums.size()) != blocks) {
    fail(place, fmt::format("{} bytes have {} blocks, but {} checksums are "
                            "given",
                            file.bytes, blocks, file.checksums.size()));
  }
  return file;
}

/// Elements of a shape whose bytes 63 bits count.
std::int64_t checked_numel(const StoredTensor& tensor, const Place& place) {
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  if (element == 0) {
    fail(place, fmt::format("dtype '{}' is not one of safetensors'",
                            detail::shown(tensor.dtype)));
  }
  std::int64_t bytes = element;
  for (const std::int64_t dim : tensor.shape) {
    if (dim == 0) {
      return 0;
    }
  }
  for (const std::int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      fail(place, fmt::format("shape {} has more bytes than 63 bits count",
                              detail::shown(fmt::format(
                                  "[{}]", fmt::join(tensor.shape, ", ")))));
    }
  }
  return bytes / element;
}

StoredRange parse_range(const json& value, const StoredTensor& tensor,
                        const std::vector<CheckpointFile>& files,
                        const Place& place) {
  if (!value.is_array() || value.size() != 4) {
    fail(place, fmt::format("range {} is not [file, begin, end, offset]",
                            detail::shown_json(value)));
  }
  const StoredRange range{.file = count_of(value[0], "a file", place),
                          .begin = count_of(value[1], "begin", place),
                          .end = count_of(value[2], "end", place),
                          .offset = count_of(value[3], "an offset", place)};
  if (range.file >= static_cast<std::int64_t>(files.size())) {
    fail(place, fmt::format("there is no file {}", range.file));
  }
  const CheckpointFile& file = files[static_cast<std::size_t>(range.file)];
  const std::int64_t element = detail::safetensors_element_bytes(tensor.dtype);
  std::int64_t bytes = 0;
  std::int64_t end = 0;
  if (range.begin > range.end ||
      __builtin_mul_overflow(range.end - range.begin, element, &bytes) ||
      __builtin_add_overflow(range.offset, bytes, &end) || end > file.bytes) {
    fail(place, fmt::format("elements [{}, {}) at offset {} do not lie in the "
                            "{} bytes of '{}'",
                            range.begin, range.end, range.offset, file.bytes,
                            detail::shown(file.name)));
  }
  return range;
}

StoredTensor parse_tensor(const std::string& name, const json& value,
                          const std::vector<CheckpointFile>& files,
                          const std::string& index) {
  const Place place{index, fmt::format("tensor '{}'", detail::shown(name))};
  StoredTensor tensor;
  tensor.dtype = text_at(value, "dtype", place);
  for (const json& dim : array_at(value, "shape", place)) {
    tensor.shape.push_back(count_of(dim, "a dim", place));
  }
  const std::int64_t numel = checked_numel(tensor, place);
  std::int64_t covered = 0;
  for (const json& range : array_at(value, "ranges", place)) {
    tensor.ranges.push_back(parse_range(range, tensor, files, place));
    if (tensor.ranges.back().begin != covered) {
      fail(place, fmt::format("a range begins at element {}, but the one "
                              "before it ends at {}",
                              tensor.ranges.back().begin, covered));
    }
    covered = tensor.ranges.back().end;
  }
  if (covered != numel) {
    fail(place, fmt::format("ranges hold {} elements of {}", covered, numel));
  }
  return tensor;
}

/// Bytes of a file that two ranges claim are of one tensor at most.
void check_overlap(const CheckpointIndex& index, const std::string& place) {
  struct Claim {
    std::int64_t begin, end;
    const std::string* tensor;
  };
  std::vector<std::vector<Claim>> claims(index.files.size());
  for (const auto& [name, tensor] : index.tensors) {
    const std::int64_t element =
        detail::safetensors_element_bytes(tensor.dtype);
    for (const StoredRange& range : tensor.ranges) {
      if (range.begin < range.end) {
        claims[static_cast<std::size_t>(range.file)].push_back(
            {range.offset, range.offset + (range.end - range.begin) * element,
             &name});
      }
    }
  }
  for (std::vector<Claim>& of_file : claims) {
    std::ranges::sort(of_file, {}, &Claim::begin);
    for (std::size_t i = 1; i < of_file.size(); ++i) {
      if (of_file[i].begin < of_file[i - 1].end) {
        fail({place,
              fmt::format("tensor '{}'", detail::shown(*of_file[i].tensor))},
             fmt::format("its bytes at offset {} overlap those of '{}'",
                         of_file[i].begin,
                         detail::shown(*of_file[i - 1].tensor)));
      }
    }
  }
}

void check_format(const json& object, const std::string& place) {
  const Place top{place, "top level"};
  if (text_at(object, "format", top) != detail::kIndexFormat) {
    fail(top, "\"format\" is not that of Accordion's checkpoints");
  }
  const std::int64_t version =
      count_of(member(object, "version", top), "\"version\"", top);
  if (version != detail::kIndexVersion) {
    throw CheckpointError(fmt::format(
        "[checkpoint] '{}' is of version {} of the format, and this program "
        "reads version {}. Use the release that wrote it.",
        place, version, detail::kIndexVersion));
  }
}

}  // namespace

CheckpointIndex parse_checkpoint_index(std::string_view text,
                                       const std::string& place) {
  verify_own_checksum(text, place);
  const json object =
      detail::parse_checked_json(text, place, detail::kMaxIndexDepth);
  check_format(object, place);
  const Place top{place, "top level"};
  CheckpointIndex index;
  const std::int64_t world =
      count_of(member(object, "world_size", top), "\"world_size\"", top);
  if (world < 1 || world > std::numeric_limits<int>::max()) {
    fail(top, fmt::format("a world size of {}", world));
  }
  index.world_size = static_cast<int>(world);
  index.values = parse_values(object_at(object, "values", top), place);
  std::set<std::string> names;
  for (const json& value : array_at(object, "files", top)) {
    index.files.push_back(parse_file(value, index.files.size(), place));
    if (!names.insert(index.files.back().name).second) {
      fail({place,
            fmt::format("file '{}'", detail::shown(index.files.back().name))},
           "it is listed twice");
    }
  }
  for (const auto& [name, value] : object_at(object, "tensors", top).items()) {
    index.tensors.emplace(name, parse_tensor(name, value, index.files, place));
  }
  for (const auto& [alias, name] : object_at(object, "aliases", top).items()) {
    if (!name.is_string() ||
        !index.tensors.contains("model/" + name.get<std::string>())) {
      fail({place, fmt::format("alias '{}'", detail::shown(alias))},
           fmt::format("there is no parameter {}", detail::shown_json(name)));
    }
    index.aliases.emplace(alias, name.get<std::string>());
  }
  check_overlap(index, place);
  return index;
}

}  // namespace accordion
