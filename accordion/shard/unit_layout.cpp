// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/shard/unit_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "accordion/shard/section_packing.h"

namespace accordion {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;
/// Elements of a unit; what is left of 63 bits holds bytes and padding.
constexpr std::int64_t kMaxUnitNumel = std::int64_t{1} << 56;

std::int64_t round_up_to_alignment(std::int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

std::int64_t checked_numel(const ParameterSpec& spec) {
  const auto fail = [&](std::string_view why) {
    throw std::invalid_argument(
        fmt::format("[UnitLayout] '{}' has the shape [{}]: {}.", spec.name,
                    fmt::join(spec.shape, ", "), why));
  };
  std::int64_t numel = 1;
  bool overflows = false;
  bool empty = false;
  for (const std::int64_t dim : spec.shape) {
    if (dim < 0) {
      fail("a dim must not be negative");
    }
    empty |= dim == 0;
    overflows |= __builtin_mul_overflow(numel, dim, &numel);
  }
  if (!empty && (overflows || numel > kMaxUnitNumel)) {
    fail(fmt::format("a unit can hold {} elements at most", kMaxUnitNumel));
  }
  return empty ? 0 : numel;
}

/// Elements of each parameter.
std::vector<std::int64_t> checked_numels(
    const std::vector<ParameterSpec>& specs, int world_size) {
  if (world_size < 1) {
    throw std::invalid_argument(fmt::format(
        "[UnitLayout] world_size is {}; it must be at least 1.", world_size));
  }
  std::unordered_set<std::string_view> names;
  std::vector<std::int64_t> numels;
  std::int64_t total = 0;
  for (const ParameterSpec& spec : specs) {
    numels.push_back(checked_numel(spec));
    total += numels.back();
    if (total > kMaxUnitNumel) {
      throw std::invalid_argument(fmt::format(
          "[UnitLayout] with '{}' the unit has more than {} elements. Split it "
          "into several units.",
          spec.name, kMaxUnitNumel));
    }
    if (!names.insert(spec.name).second) {
      throw std::invalid_argument(fmt::format(
          "[UnitLayout] the name '{}' is given to two parameters. A shared "
          "parameter is listed once.",
          spec.name));
    }
  }
  return numels;
}

bool belongs_to(const Section& section, const ParameterSpec& spec) {
  return section.stored_dtype == spec.stored_dtype &&
         section.gathered_dtype == spec.gathered_dtype &&
         section.requires_grad == spec.requires_grad &&
         section.placement == spec.placement;
}

/// Elements of one row of dim 0; those of the whole for a scalar.
std::int64_t row_numel(const ParameterSpec& spec, std::int64_t numel) {
  return spec.shape.empty() || numel == 0 ? numel : numel / spec.shape[0];
}

/// The sections of a unit, by first appearance, not packed yet.
std::vector<Section> group(const std::vector<ParameterSpec>& specs) {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    const auto holds = [&](const Section& section) {
      return belongs_to(section, spec);
    };
    auto section = std::find_if(sections.begin(), sections.end(), holds);
    if (section == sections.end()) {
      section = sections.insert(section, Section{spec.stored_dtype,
                                                 spec.gathered_dtype,
                                                 spec.requires_grad,
                                                 spec.placement,
                                                 {},
                                                 {}});
    }
    section->parameters.push_back(static_cast<int>(i));
  }
  return sections;
}

void pack(Section& section, const std::vector<ParameterSpec>& specs,
          const std::vector<std::int64_t>& numels, int world_size) {
  std::vector<detail::PackedParameter> parameters;
  for (const int parameter : section.parameters) {
    const std::int64_t numel = numels[parameter];
    parameters.push_back({numel, row_numel(specs[parameter], numel)});
    section.numel += numel;
  }
  const int num_cuts = section.placement == Placement::Shard ? world_size : 1;
  detail::SectionPacking packing = detail::pack_section(
      parameters, kAlignmentBytes / element_bytes(section.stored_dtype),
      num_cuts);
  section.offsets = std::move(packing.offsets);
  section.numel_per_rank = packing.numel_per_rank;
  section.padded_numel = packing.numel_per_rank * num_cuts;
}

std::vector<std::int64_t> local_shape(const ParameterSpec& spec,
                                      std::int64_t numel, const Piece& piece) {
  if (piece.numel() == numel) {
    return spec.shape;
  }
  const std::int64_t row = row_numel(spec, numel);
  if (spec.shape.empty() || piece.begin % row != 0 || piece.end % row != 0) {
    return {piece.numel()};
  }
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = piece.numel() / row;
  return shape;
}

}  // namespace

UnitLayout UnitLayout::make(std::vector<ParameterSpec> specs, int world_size) {
  UnitLayout layout;
  layout.numel_of_ = checked_numels(specs, world_size);
  layout.world_size_ = world_size;
  layout.specs_ = std::move(specs);

  layout.sections_ = group(layout.specs_);
  layout.section_of_.resize(layout.specs_.size());
  layout.offset_of_.resize(layout.specs_.size());
  for (std::size_t s = 0; s < layout.sections_.size(); ++s) {
    Section& section = layout.sections_[s];
    pack(section, layout.specs_, layout.numel_of_, world_size);
    for (std::size_t i = 0; i < section.parameters.size(); ++i) {
      layout.section_of_[section.parameters[i]] = static_cast<int>(s);
      layout.offset_of_[section.parameters[i]] = section.offsets[i];
    }
    layout.unsharded_offsets_.push_back(
        layout.unsharded_offsets_.back() +
        round_up_to_alignment(section.padded_numel *
                              element_bytes(section.gathered_dtype)));
  }
  return layout;
}

std::int64_t UnitLayout::numel(int parameter) const {
  return numel_of_.at(parameter);
}

int UnitLayout::section_of(int parameter) const {
  return section_of_.at(parameter);
}

std::int64_t UnitLayout::offset_of(int parameter) const {
  return offset_of_.at(parameter);
}

Piece UnitLayout::piece(int parameter, int rank) const {
  const Section& section = sections_[section_of(parameter)];
  const std::int64_t whole = numel(parameter);
  const std::int64_t n = section.numel_per_rank;
  // Where the rank's shard begins, counted from the parameter's first element.
  const std::int64_t shard_begin =
      (section.placement == Placement::Shard ? rank * n : 0) -
      offset_of(parameter);

  Piece piece;
  piece.begin = std::clamp<std::int64_t>(shard_begin, 0, whole);
  piece.end = std::clamp<std::int64_t>(shard_begin + n, 0, whole);
  piece.shard_offset =
      std::clamp<std::int64_t>(piece.begin - shard_begin, 0, n);
  piece.local_shape = local_shape(specs_[parameter], whole, piece);
  return piece;
}

std::vector<Range> UnitLayout::gaps(int section) const {
  const Section& of = sections_.at(section);
  std::vector<Range> gaps;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < of.parameters.size(); ++i) {
    if (of.offsets[i] > end) {
      gaps.push_back({end, of.offsets[i]});
    }
    end = of.offsets[i] + numel(of.parameters[i]);
  }
  if (of.padded_numel > end) {
    gaps.push_back({end, of.padded_numel});
  }
  return gaps;
}

std::int64_t UnitLayout::sharded_bytes() const {
  std::int64_t bytes = 0;
  for (const Section& section : sections_) {
    bytes += section.numel_per_rank * element_bytes(section.stored_dtype);
  }
  return bytes;
}

std::int64_t UnitLayout::unsharded_bytes() const {
  return unsharded_offsets_.back();
}

std::int64_t UnitLayout::unsharded_offset(int section) const {
  return unsharded_offsets_.at(section);
}

}  // namespace accordion
