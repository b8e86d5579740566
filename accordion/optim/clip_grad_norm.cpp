// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/clip_grad_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion {

namespace {

/// As torch::nn::utils::clip_grad_norm_ has it.
constexpr double kClipEpsilon = 1e-6;

/// The whole shard's gradient where every piece has one, a longer pass over
/// memory whose padding is zero; else those of the pieces that do.
std::vector<at::Tensor> gradients_of(const FlatShard& shard) {
  std::vector<at::Tensor> defined;
  for (const LocalParameter& piece : shard.pieces) {
    if (piece.gradient.defined()) {
      defined.push_back(piece.gradient);
    }
  }
  const bool all = !defined.empty() && defined.size() == shard.pieces.size();
  return all ? std::vector{shard.gradients} : defined;
}

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

/// Combines the ranks' sums in rank order, so that every rank gets the same.
double global_norm(double mine, double p, Communicator& communicator,
                   std::string_view label) {
  std::vector<double> all(static_cast<std::size_t>(communicator.world_size()));
  const GatherPart part{.local = &mine,
                        .local_dtype = DType::Float64,
                        .full = all.data(),
                        .full_dtype = DType::Float64,
                        .numel = 1};
  communicator.all_gather_into({&part, 1}, nullptr, label).wait();
  double sum = 0;
  for (const double theirs : all) {
    if (std::isnan(theirs)) {
      return theirs;
    }
    sum = std::isinf(p) ? std::max(sum, theirs) : sum + theirs;
  }
  return std::isinf(p) ? sum : std::pow(sum, 1.0 / p);
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

/// What a norm that is not finite comes from.
std::string describe_fault(const std::optional<std::string>& unit) {
  if (!unit) {
    return "every gradient is finite, but their powers overflow";
  }
  return "the first unit with a gradient that is not finite is " +
         (unit->empty() ? "the root" : "'" + *unit + "'");
}

}  // namespace

std::optional<std::string> first_nonfinite_unit(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  const std::vector<FlatShard> shards = flat_shards(root);
  const auto fault =
      std::find_if(shards.begin(), shards.end(), [](const FlatShard& shard) {
        const std::vector<at::Tensor> gradients = gradients_of(shard);
        return !std::all_of(gradients.begin(), gradients.end(), is_finite);
      });
  const std::int64_t mine = fault - shards.begin();
  Communicator& ranks = shard_communicator(root);
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks.world_size()));
  const GatherPart part{.local = &mine,
                        .local_dtype = DType::Int64,
                        .full = all.data(),
                        .full_dtype = DType::Int64,
                        .numel = 1};
  ranks.all_gather_into({&part, 1}, nullptr, "first_nonfinite_unit").wait();
  const auto first =
      static_cast<std::size_t>(*std::min_element(all.begin(), all.end()));
  return first == shards.size() ? std::nullopt
                                : std::optional(shards[first].unit);
}

double reduced_grad_norm(const torch::nn::Module& root) {
  const at::NoGradGuard no_grad;
  Communicator& ranks = shard_communicator(root);
  const double sum = sum_over_shards(
      flat_shards(root), ranks.rank(),
      [](double so_far, const FlatShard& shard) {
        const std::vector<at::Tensor> gradients = gradients_of(shard);
        const bool all =
            gradients.size() == 1 && gradients.front().is_same(shard.gradients);
        return all ? so_far + shard.gradient_squares
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
    const std::string fault = describe_fault(first_nonfinite_unit(root));
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
