// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/measured_rates.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

constexpr std::array<std::string_view, 7> kKinds = {
    "product", "attention", "step",      "optimizer",
    "gather",  "reduce",    "all_reduce"};
constexpr std::array<std::string_view, 4> kTypes = {"fp32", "fp16", "bf16",
                                                    "fp8"};

template <class Enum, std::size_t N>
Enum parse(std::string_view name, std::string_view what,
           const std::array<std::string_view, N>& names) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw std::invalid_argument(
        fmt::format("{} '{}' is not known; the nearest is '{}'.", what, name,
                    nearest_name(name, names)));
  }
  return static_cast<Enum>(found - names.begin());
}

/// A product takes about as long whichever of its sizes is which.
std::array<double, 3> in_order(MeasuredKind kind, std::array<double, 3> sizes) {
  if (kind == MeasuredKind::Product) {
    std::ranges::sort(sizes);
  }
  return sizes;
}

double squared_distance(const std::array<double, 3>& a,
                        const std::array<double, 3>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double factor = std::log2(a[i] / b[i]);
    sum += factor * factor;
  }
  return sum;
}

}  // namespace

std::string_view to_string(MeasuredKind kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

MeasuredKind parse_measured_kind(std::string_view name) {
  return parse<MeasuredKind>(name, "Kind", kKinds);
}

std::string_view to_string(ComputeType compute) {
  return kTypes.at(static_cast<std::size_t>(compute));
}

ComputeType parse_compute_type(std::string_view name) {
  return parse<ComputeType>(name, "Type", kTypes);
}

std::optional<double> rate_at(std::span<const MeasuredRate> measured,
                              MeasuredKind kind, ComputeType compute,
                              std::array<double, 3> sizes) {
  // A hundredth of a doubling: what lies so near is the same size.
  constexpr double kNear = 1e-4;
  const std::array<double, 3> wanted = in_order(kind, sizes);
  double weights = 0.0;
  double sum = 0.0;
  for (const MeasuredRate& rate : measured) {
    if (rate.kind == kind && rate.compute == compute) {
      const double distance =
          squared_distance(wanted, in_order(kind, rate.sizes)) + kNear;
      const double weight = 1.0 / (distance * distance);
      weights += weight;
      sum += weight * std::log(rate.per_s);
    }
  }
  return weights > 0.0 ? std::optional(std::exp(sum / weights)) : std::nullopt;
}

}  // namespace accordion::plan
