// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string_view>

#include "accordion/checkpoint/tensor_cursor.h"

namespace accordion {
namespace {

constexpr std::string_view kModel = "model/";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double absolute_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0.0;
  }
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? kInfinity : difference;
}

double relative_difference(double absolute, double a, double b) {
  if (absolute == 0.0 || std::isinf(absolute)) {
    return absolute;
  }
  return absolute / std::max(std::abs(a), std::abs(b));
}

bool is_integer(std::string_view dtype) {
  return dtype.starts_with('I') || dtype.starts_with('U');
}

/// Whether an element of two chunks of one dtype has other bits.
class BitsDiffer {
 public:
  BitsDiffer(const TensorCursor& a, const TensorCursor& b)
      : a_(a.bytes().data()),
        b_(b.bytes().data()),
        bytes_(static_cast<std::size_t>(a.element_bytes())) {}

  bool operator()(std::size_t i) const {
    return std::memcmp(a_ + i * bytes_, b_ + i * bytes_, bytes_) != 0;
  }

 private:
  const std::byte* a_;
  const std::byte* b_;
  std::size_t bytes_;
};

void add_value(TensorDifference& found, std::int64_t at, double a, double b) {
  double absolute = absolute_difference(a, b);
  if (absolute == 0.0 && found.dtype_a == found.dtype_b &&
      is_integer(found.dtype_a)) {
    absolute = 1.0;  // beyond 2^53
  }
  found.max_relative =
      std::max(found.max_relative, relative_difference(absolute, a, b));
  if (found.at < 0 || absolute > found.max_absolute) {
    found.max_absolute = absolute;
    found.at = at;
    found.a = a;
    found.b = b;
  }
}

void compare_same_dtype(TensorCursor& a, TensorCursor& b,
                        TensorDifference& found) {
  if (std::ranges::equal(a.bytes(), b.bytes())) {
    return;
  }
  const BitsDiffer differs(a, b);
  std::span<const double> values_a;
  std::span<const double> values_b;
  if (found.has_values) {
    values_a = a.values();
    values_b = b.values();
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.numel()); ++i) {
    if (!differs(i)) {
      continue;
    }
    ++found.differing;
    if (found.has_values) {
      add_value(found, a.begin() + static_cast<std::int64_t>(i), values_a[i],
                values_b[i]);
    }
  }
}

void compare_values(TensorCursor& a, TensorCursor& b, TensorDifference& found) {
  const std::span<const double> values_a = a.values();
  const std::span<const double> values_b = b.values();
  for (std::size_t i = 0; i < values_a.size(); ++i) {
    if (absolute_difference(values_a[i], values_b[i]) != 0.0) {
      ++found.differing;
      add_value(found, a.begin() + static_cast<std::int64_t>(i), values_a[i],
                values_b[i]);
    }
  }
}

TensorDifference compare(const std::string& name, TensorSource& a,
                         const TensorInfo& of_a, TensorSource& b,
                         const TensorInfo& of_b) {
  TensorCursor cursor_a(a, of_a);
  TensorCursor cursor_b(b, of_b);
  TensorDifference found{
      .name = name,
      .dtype_a = of_a.dtype,
      .dtype_b = of_b.dtype,
      .shape = of_a.shape,
      .numel = of_a.numel,
      .has_values = cursor_a.has_values() && cursor_b.has_values()};
  const bool same_dtype = of_a.dtype == of_b.dtype;
  if (!same_dtype && !found.has_values) {
    found.differing = found.numel;  // nothing says what they have in common
    return found;
  }
  const auto compare_chunk = same_dtype ? compare_same_dtype : compare_values;
  while (cursor_a.next() && cursor_b.next()) {
    compare_chunk(cursor_a, cursor_b, found);
  }
  return found;
}

/// Whether names are those of a model alone, not of a checkpoint.
bool is_plain(const TensorSource& source) {
  return source.checkpoint() == nullptr &&
         std::ranges::none_of(source.tensors(), [](const TensorInfo& tensor) {
           return tensor.name.starts_with(kModel);
         });
}

/// A side of the comparison, by the names under which it is compared.
struct Side {
  TensorSource& source;
  std::string_view prefix;  // of every name that takes part

  [[nodiscard]] bool has(const TensorInfo& tensor) const {
    return tensor.name.starts_with(prefix);
  }
  [[nodiscard]] std::string name_of(const TensorInfo& tensor) const {
    return tensor.name.substr(prefix.size());
  }
  [[nodiscard]] const TensorInfo* find(const std::string& name) const {
    return source.find(std::string(prefix) + name);
  }
};

class Comparison {
 public:
  Comparison(TensorSource& a, TensorSource& b)
      : a_{a, prefix(a, b)}, b_{b, prefix(b, a)} {
    report_.path_a = a.path().string();
    report_.path_b = b.path().string();
  }

  DiffReport run() {
    add_names(a_, b_, report_.only_a);
    add_names(b_, a_, report_.only_b);
    for (const std::string& name : in_both_) {
      add(name, *a_.find(name), *b_.find(name));
    }
    std::ranges::stable_sort(report_.tensors, std::ranges::greater(), size);
    return std::move(report_);
  }

 private:
  static std::string_view prefix(const TensorSource& of,
                                 const TensorSource& other) {
    return !is_plain(of) && is_plain(other) ? kModel : "";
  }

  void add_names(const Side& side, const Side& other,
                 std::vector<std::string>& only) {
    for (const TensorInfo& tensor : side.source.tensors()) {
      if (!side.has(tensor)) {
        ++report_.left_out;
        continue;
      }
      const std::string name = side.name_of(tensor);
      if (other.find(name) == nullptr) {
        only.push_back(name);
      } else {
        in_both_.insert(name);
      }
    }
  }

  void add(const std::string& name, const TensorInfo& of_a,
           const TensorInfo& of_b) {
    if (of_a.shape != of_b.shape) {
      report_.shapes.push_back({name, of_a.shape, of_b.shape});
      return;
    }
    report_.tensors.push_back(compare(name, a_.source, of_a, b_.source, of_b));
  }

  /// What cannot be told comes first, what is identical last.
  static double size(const TensorDifference& tensor) {
    if (tensor.is_identical()) {
      return -1.0;
    }
    return tensor.has_values ? tensor.max_absolute : kInfinity;
  }

  Side a_;
  Side b_;
  std::set<std::string> in_both_;
  DiffReport report_;
};

}  // namespace

DiffReport diff(TensorSource& a, TensorSource& b) {
  return Comparison(a, b).run();
}

bool is_same(const TensorDifference& tensor, std::optional<double> tolerance) {
  return tensor.is_identical() ||
         (tolerance && tensor.has_values && tensor.max_absolute <= *tolerance);
}

bool is_same(const DiffReport& report, std::optional<double> tolerance) {
  return report.shapes.empty() && report.only_a.empty() &&
         report.only_b.empty() &&
         std::ranges::all_of(report.tensors, [&](const auto& tensor) {
           return is_same(tensor, tolerance);
         });
}

}  // namespace accordion
