// SPDX-License-Identifier: BSD-3-Clause
//
// One step of AdamW over a range: the fused kernel on threads, or LibTorch's.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include "accordion/module/init_rule.h"
#include "accordion/module/philox.h"
#include "accordion/ops/kernels/adamw.h"
#include "accordion/optim/adamw.h"

namespace accordion {

namespace {

using kernels::Bf16;

/// Elements worth handing to a thread.
constexpr std::int64_t kElementsPerTask = 1 << 16;

/// Of random numbers: not that which fresh parameters are drawn from.
constexpr std::uint64_t kRoundingStream = 1;

bool is_kernel_dtype(c10::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16;
}

/// Calls `body` with a float or a Bf16, as the tensor's dtype is.
template <class Body>
void with_element_of(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kBFloat16) {
    body(Bf16{});
  } else {
    body(float{});
  }
}

template <class Parameter, class Moment, class Operands>
kernels::AdamWOperands<Parameter, Moment> operands_at(const Operands& operands,
                                                      std::int64_t begin) {
  return {
      static_cast<Parameter*>(operands.parameters.mutable_data_ptr()) + begin,
      static_cast<const Parameter*>(operands.gradients.const_data_ptr()) +
          begin,
      static_cast<Moment*>(operands.first_moment.mutable_data_ptr()) + begin,
      static_cast<Moment*>(operands.second_moment.mutable_data_ptr()) + begin,
      operands.copy.defined()
          ? static_cast<Bf16*>(operands.copy.mutable_data_ptr()) + begin
          : nullptr};
}

template <class Parameter, class Moment>
void update(const kernels::AdamWOperands<Parameter, Moment>& operands,
            std::int64_t numel, const kernels::AdamWStep& step,
            const std::optional<kernels::AdamWRounding>& rounding) {
  constexpr bool kRounds =
      std::is_same_v<Parameter, Bf16> || std::is_same_v<Moment, Bf16>;
  const auto task = [&](std::int64_t begin, std::int64_t end) {
    if constexpr (kRounds) {
      if (rounding) {
        kernels::adamw(operands.from(begin), step, end - begin,
                       rounding->from(begin));
        return;
      }
    }
    kernels::adamw(operands.from(begin), step, end - begin);
  };
  at::parallel_for(0, numel, kElementsPerTask, task);
}

/// Whether the kernel can update `parameters` by moments of that dtype, or
/// would if they were not on meta.
bool has_fused_adamw(const at::Tensor& parameters, c10::ScalarType moments) {
  return (parameters.is_cpu() || parameters.is_meta()) &&
         is_kernel_dtype(parameters.scalar_type()) && is_kernel_dtype(moments);
}

/// Updates elements [begin, begin + numel) in one pass. With `rounding`, what
/// is bf16 is rounded stochastically; its first_element is that of `begin`.
template <class Operands>
void fused_adamw(const Operands& operands, std::int64_t begin,
                 std::int64_t numel, const kernels::AdamWStep& step,
                 const std::optional<kernels::AdamWRounding>& rounding = {}) {
  with_element_of(operands.parameters, [&]<class Parameter>(Parameter) {
    with_element_of(operands.first_moment, [&]<class Moment>(Moment) {
      update(operands_at<Parameter, Moment>(operands, begin), numel, step,
             rounding);
    });
  });
}

/// For the elements of a piece from its `first` on.
kernels::AdamWRounding rounding_of(const LocalParameter& piece,
                                   std::int64_t first, std::uint64_t seed,
                                   std::int64_t steps) {
  const Philox::Block words =
      Philox(random_key(seed, piece.name))
          .block(static_cast<std::uint64_t>(steps), kRoundingStream);
  return {.moments_key = {words[0], words[1]},
          .parameters_key = {words[2], words[3]},
          .first_element = static_cast<std::uint32_t>(piece.begin + first)};
}

}  // namespace

c10::ScalarType AdamW::moments_dtype(const FlatShard& shard) const {
  const c10::ScalarType stored = shard.parameters.scalar_type();
  const c10::ScalarType moments = options_.moments_dtype.value_or(stored);
  const bool rounds = options_.stochastic_rounding &&
                      (stored == at::kBFloat16 || moments == at::kBFloat16);
  TORCH_CHECK_VALUE(
      (moments == stored && !rounds) ||
          has_fused_adamw(shard.parameters, moments),
      "[AdamW] parameter '", shard.pieces.front().name, "' is stored as ",
      stored, " on ", shard.parameters.device(), ", but moments_dtype ",
      moments, rounds ? " and stochastic_rounding are" : " is",
      " for fp32 and bf16 parameters on the CPU. Leave them unset here.");
  return moments;
}

/// Where the kernel cannot, the next gather writes it.
bool AdamW::steps_copy(const FlatShard& shard) const {
  return shard.copy != nullptr &&
         shard.copy->values.scalar_type() == at::kBFloat16 &&
         has_fused_adamw(shard.parameters, moments_dtype(shard));
}

/// What of the range lies in the operands.
void AdamW::update(const Operands& all, const Range& range,
                   double gradient_scale) const {
  const std::int64_t begin = std::max(range.begin, all.begin);
  const std::int64_t numel =
      std::min(range.end, all.begin + all.parameters.numel()) - begin;
  if (numel <= 0 || all.parameters.is_meta()) {
    return;
  }
  const auto part = [&](const at::Tensor& of_all) {
    return of_all.narrow(0, begin - all.begin, numel);
  };
  const Operands operands{begin,
                          part(all.parameters),
                          part(all.gradients),
                          part(all.first_moment),
                          part(all.second_moment),
                          all.copy.defined() ? part(all.copy) : at::Tensor()};
  if (has_fused_adamw(operands.parameters,
                      operands.first_moment.scalar_type())) {
    update_fused(operands, range, gradient_scale);
  } else {
    update_by_torch(operands, range, gradient_scale);
  }
}

void AdamW::update_by_torch(const Operands& operands, const Range& range,
                            double gradient_scale) const {
  const at::Tensor gradients = gradient_scale == 1.0
                                   ? operands.gradients
                                   : operands.gradients.mul(gradient_scale);
  at::_fused_adamw_(
      {operands.parameters}, {gradients}, {operands.first_moment},
      {operands.second_moment}, /*max_exp_avg_sqs=*/{},
      {at::scalar_tensor(
          range.steps,
          at::device(operands.parameters.device()).dtype(at::kFloat))},
      options_.lr, options_.beta1, options_.beta2,
      range.decays ? options_.weight_decay : 0.0, options_.eps,
      /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::update_fused(const Operands& operands, const Range& range,
                         double gradient_scale) const {
  const auto t = static_cast<double>(range.steps);
  const double decay = range.decays ? options_.weight_decay : 0.0;
  const kernels::AdamWStep step{
      .gradient_scale = static_cast<float>(gradient_scale),
      .keep = static_cast<float>(1 - options_.lr * decay),
      .first_weight = static_cast<float>(1 - options_.beta1),
      .second_weight = static_cast<float>(1 - options_.beta2),
      .beta2 = static_cast<float>(options_.beta2),
      .step_size =
          static_cast<float>(options_.lr / (1 - std::pow(options_.beta1, t))),
      .root_scale =
          static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
      .eps = static_cast<float>(options_.eps)};
  const std::int64_t numel = operands.parameters.numel();
  if (!options_.stochastic_rounding) {
    fused_adamw(operands, 0, numel, step);
    return;
  }
  // Piece by piece: elements are numbered within their parameter.
  for (std::size_t i = 0; i < range.pieces.size(); ++i) {
    const LocalParameter& piece = range.pieces[i];
    const std::int64_t offset = range.offsets[i] - operands.begin;
    const std::int64_t from = std::max<std::int64_t>(offset, 0);
    const std::int64_t to = std::min(offset + piece.piece.numel(), numel);
    if (from < to) {
      fused_adamw(operands, from, to - from, step,
                  rounding_of(piece, from - offset, options_.rounding_seed,
                              range.steps));
    }
  }
}

}  // namespace accordion
