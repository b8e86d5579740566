// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/clip_grad_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include "accordion/comm/gather_values.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/shard_gradients.h"

namespace accordion {

namespace {

/// As torch::nn::utils::clip_grad_norm_ has it.
constexpr double kClipEpsilon = 1e-6;

using detail::global_norm;
using detail::gradients_of;

/// Adds |g|^p of every gradient to `sum`; the largest |g| for p = inf.
double add_powers(double sum, const std::vector<at::Tensor>& gradients,
                  double p) {
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) {
      continue;
    }
    const at::ScalarType dtype =
        gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const double norm =
        at::linalg_vector_norm(gradient, p, std::nullopt, false, dtype)
            .item<double>();
    sum = std::isinf(p) ? std::max(sum, norm) : sum + std::pow(norm, p);
    if (std::isnan(norm)) {
      return norm;  // max would drop it
    }
  }
  return sum;
}

/// What this rank adds to the norm: `add` takes the sum so far and a shard. One
/// that all ranks hold whole counts once.
template <class Add>
double sum_over_shards(const std::vector<FlatShard>& shards, int rank,
                       Add&& add) {
  double sum = 0;
  for (const FlatShard& shard : shards) {
    if (shard.sharded || rank == 0) {
      sum = add(sum, shard);
    }
  }
  return sum;
}

/// FlatShard::gradient_squares of each, read from a device at once.
std::vector<double> reduced_squares(const std::vector<FlatShard>& shards) {
  std::vector<at::Tensor> sums;
  for (const FlatShard& shard : shards) {
    sums.push_back(shard.gradient_squares);
  }
  if (sums.empty()) {
    return {};
  }
  const at::Tensor all = at::cat(sums).cpu();
  const auto* const values = all.const_data_ptr<double>();
  return {values, values + all.numel()};
}

void check_max_norm(double max_norm, std::string_view caller) {
  TORCH_CHECK_VALUE(max_norm >= 0, "[", caller, "] max_norm is ", max_norm,
                    "; it is a bound, 0 or more");
}

bool is_finite(const at::Tensor& gradient) {
  // The largest magnitude: one pass without a mask, and no sum to overflow.
  constexpr double kLargest = std::numeric_limits<double>::infinity();
  return gradient.numel() == 0 ||
         std::isfinite(
             at::linalg_vector_norm(gradient, kLargest, std::nullopt, false)
                 .item<double>());
}

constexpr std::int64_t kNowhere = -1;

/// Each parameter's place in the order in which modules registered them, which
/// is that of forward in most.
std::unordered_map<const c10::TensorImpl*, std::int64_t> places_in_registration(
    const torch::nn::Module& root) {
  std::unordered_map<const c10::TensorImpl*, std::int64_t> places;
  for (const torch::Tensor& parameter : root.parameters()) {
    places.try_emplace(parameter.unsafeGetTensorImpl(),
                       static_cast<std::int64_t>(places.size()));
  }
  return places;
}

/// What a norm that is not finite comes from.
std::string describe_faulty_unit(const std::optional<std::string>& unit) {
  if (!unit) {
    return "every gradient is finite, but their powers overflow";
  }
  return "backward first met a gradient that is not finite in " +
         (unit->empty() ? "the root" : "'" + *unit + "'");
}

}  // namespace

double detail::global_norm(double mine, double p, Communicator& communicator,
                           std::string_view label) {
  double sum = 0;
  for (const double theirs : gather_values(communicator, mine, label)) {
    if (std::isnan(theirs)) {
      return theirs;
    }
    sum = std::isinf(p) ? std::max(sum, theirs) : sum + theirs;
  }
  if (p == 2) {
    return std::sqrt(sum);  // exact to the last bit, so that scales cancel
  }
  return std::isinf(p) ? sum : std::pow(sum, 1.0 / p);
}

/// Backward comes to what is registered last first, and what it meets there
/// that is not finite spreads to all that is registered before.
std::optional<std::string> first_nonfinite_unit(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  const std::unordered_map<const c10::TensorImpl*, std::int64_t> places =
      places_in_registration(root);
  std::map<std::int64_t, std::string> units;  // by the places of parameters
  std::int64_t mine = kNowhere;
  for (const FlatShard& shard : flat_shards(root)) {
    for (const LocalParameter& piece : shard.pieces) {
      const std::int64_t place =
          places.at(piece.parameter.unsafeGetTensorImpl());
      units.emplace(place, shard.unit);
      if (place > mine && piece.gradient.defined() &&
          !is_finite(piece.gradient)) {
        mine = place;
      }
    }
  }
  const std::vector<std::int64_t> all =
      gather_values(shard_communicator(root), mine, "first_nonfinite_unit");
  const std::int64_t last = *std::max_element(all.begin(), all.end());
  return last == kNowhere ? std::nullopt : std::optional(units.at(last));
}

double reduced_grad_norm(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  Communicator& ranks = shard_communicator(root);
  const std::vector<FlatShard> shards = flat_shards(root);
  const std::vector<double> squares = reduced_squares(shards);
  const double sum = sum_over_shards(
      shards, ranks.rank(), [&](double so_far, const FlatShard& shard) {
        const std::vector<at::Tensor> gradients = gradients_of(shard);
        const bool all =
            gradients.size() == 1 && gradients.front().is_same(shard.gradients);
        const auto index = static_cast<std::size_t>(&shard - shards.data());
        return all ? so_far + squares[index]
                   : add_powers(so_far, gradients, 2.0);
      });
  return global_norm(sum, 2.0, ranks, "reduced_grad_norm");
}

double clip_coefficient(double norm, double max_norm) {
  check_max_norm(max_norm, "clip_coefficient");
  const double coefficient = max_norm / (norm + kClipEpsilon);
  return coefficient < 1.0 || std::isnan(coefficient) ? coefficient : 1.0;
}

double clip_grad_norm_(torch::nn::Module& root, double max_norm,
                       double norm_type, bool error_if_nonfinite) {
  check_max_norm(max_norm, "clip_grad_norm_");
  TORCH_CHECK_VALUE(norm_type >= 1, "[clip_grad_norm_] norm_type is ",
                    norm_type, "; give a number of 1 or more, or infinity");
  const at::NoGradGuard no_grad;
  const std::vector<FlatShard> shards = flat_shards(root);
  Communicator& ranks = shard_communicator(root);
  const double sum = sum_over_shards(
      shards, ranks.rank(), [&](double so_far, const FlatShard& shard) {
        return add_powers(so_far, gradients_of(shard), norm_type);
      });
  const double norm = global_norm(sum, norm_type, ranks, "clip_grad_norm_");
  if (error_if_nonfinite && !std::isfinite(norm)) {
    const std::string fault = describe_faulty_unit(first_nonfinite_unit(root));
    TORCH_CHECK_VALUE(false, "[clip_grad_norm_] the norm of the gradients is ",
                      norm, ": ", fault,
                      ". Look for a learning rate that is too high, or bad "
                      "data; pass error_if_nonfinite = false to go on.");
  }
  const double coefficient = clip_coefficient(norm, max_norm);
  if (coefficient != 1.0) {
    for (const FlatShard& shard : shards) {
      for (const at::Tensor& gradient : gradients_of(shard)) {
        gradient.mul_(coefficient);
      }
    }
  }
  return norm;
}

}  // namespace accordion
