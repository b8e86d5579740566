// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/clip_grad_norm.h"

#include <cmath>
#include <limits>
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

/// The gradients of this rank, whole shards where every piece has one: fewer
/// and longer passes over memory. Padding is zero and does not count.
std::vector<at::Tensor> gradients_of(const torch::nn::Module& root) {
  std::vector<at::Tensor> result;
  for (const FlatShard& shard : flat_shards(root)) {
    std::vector<at::Tensor> defined;
    for (const LocalParameter& piece : shard.pieces) {
      if (piece.gradient.defined()) {
        defined.push_back(piece.gradient);
      }
    }
    if (!defined.empty() && defined.size() == shard.pieces.size()) {
      result.push_back(shard.gradients);
    } else {
      result.insert(result.end(), defined.begin(), defined.end());
    }
  }
  return result;
}

/// Sum of |g|^p over this rank's gradients; the largest |g| for p = inf.
double local_power_sum(const std::vector<at::Tensor>& gradients, double p) {
  double result = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) {
      continue;
    }
    const double norm =
        at::linalg_vector_norm(gradient, p, std::nullopt, false, at::kFloat)
            .item<double>();
    result =
        std::isinf(p) ? std::max(result, norm) : result + std::pow(norm, p);
    if (std::isnan(norm)) {
      return norm;  // max would drop it
    }
  }
  return result;
}

/// Combines the ranks' sums in rank order, so that every rank gets the same.
double global_norm(double mine, double p, Communicator& communicator) {
  std::vector<double> all(static_cast<std::size_t>(communicator.world_size()));
  const GatherPart part{.local = &mine,
                        .local_dtype = DType::Float64,
                        .full = all.data(),
                        .full_dtype = DType::Float64,
                        .numel = 1};
  communicator.all_gather_into({&part, 1}, nullptr, "clip_grad_norm_").wait();
  double sum = 0;
  for (const double theirs : all) {
    if (std::isnan(theirs)) {
      return theirs;
    }
    sum = std::isinf(p) ? std::max(sum, theirs) : sum + theirs;
  }
  return std::isinf(p) ? sum : std::pow(sum, 1.0 / p);
}

}  // namespace

double clip_grad_norm_(torch::nn::Module& root, double max_norm,
                       double norm_type, bool error_if_nonfinite) {
  TORCH_CHECK_VALUE(max_norm >= 0, "[clip_grad_norm_] max_norm is ", max_norm,
                    "; it is a bound, 0 or more");
  TORCH_CHECK_VALUE(norm_type >= 1, "[clip_grad_norm_] norm_type is ",
                    norm_type, "; give a number of 1 or more, or infinity");
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(root);
  const double norm = global_norm(local_power_sum(gradients, norm_type),
                                  norm_type, shard_communicator(root));
  TORCH_CHECK_VALUE(!error_if_nonfinite || std::isfinite(norm),
                    "[clip_grad_norm_] the norm of the gradients is ", norm,
                    ". Look for a learning rate that is too high, or bad data; "
                    "pass error_if_nonfinite = false to go on.");
  const double coefficient = max_norm / (norm + kClipEpsilon);
  if (coefficient < 1.0 || std::isnan(coefficient)) {
    for (const at::Tensor& gradient : gradients) {
      gradient.mul_(coefficient);
    }
  }
  return norm;
}

}  // namespace accordion
