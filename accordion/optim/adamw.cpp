// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/adamw.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "accordion/optim/shard_cursor.h"

namespace accordion {

namespace {

void check_adamw_options(const AdamWOptions& options) {
  TORCH_CHECK_VALUE(options.lr >= 0, "[AdamW] lr is ", options.lr,
                    "; give 0 or more");
  TORCH_CHECK_VALUE(options.beta1 >= 0 && options.beta1 < 1 &&
                        options.beta2 >= 0 && options.beta2 < 1,
                    "[AdamW] betas are ", options.beta1, ", ", options.beta2,
                    "; give numbers in [0, 1)");
  TORCH_CHECK_VALUE(options.eps >= 0, "[AdamW] eps is ", options.eps,
                    "; give 0 or more");
  TORCH_CHECK_VALUE(options.weight_decay >= 0, "[AdamW] weight_decay is ",
                    options.weight_decay, "; give 0 or more");
  TORCH_CHECK_VALUE(!options.moments_dtype ||
                        options.moments_dtype == at::kFloat ||
                        options.moments_dtype == at::kBFloat16,
                    "[AdamW] moments_dtype is ",
                    c10::toString(options.moments_dtype.value_or(at::kFloat)),
                    "; give kFloat or kBFloat16, or leave it unset");
}

/// Stochastic rounding needs something to round.
void check_rounding(const torch::nn::Module& root,
                    const AdamWOptions& options) {
  if (!options.stochastic_rounding || options.moments_dtype == at::kBFloat16) {
    return;
  }
  const std::vector<FlatShard> shards = flat_shards(root);
  TORCH_CHECK_VALUE(
      std::any_of(shards.begin(), shards.end(),
                  [](const FlatShard& shard) {
                    return shard.parameters.scalar_type() == at::kBFloat16;
                  }),
      "[AdamW] stochastic_rounding is set, but neither parameters nor moments "
      "are stored in bf16, so that nothing is rounded. Set moments_dtype = "
      "kBFloat16, or leave stochastic_rounding false.");
}

bool has_gradient(const LocalParameter& piece) {
  return piece.parameter.requires_grad() && piece.parameter.grad().defined();
}

}  // namespace

AdamW::AdamW(torch::nn::Module& root, AdamWOptions options)
    : root_(root), options_(std::move(options)) {
  check_adamw_options(options_);
  check_rounding(root_, options_);
  const at::NoGradGuard no_grad;
  add_new_shards();
}

/// Shards with gradients that had none when last looked: all of their
/// parameters were frozen.
void AdamW::add_new_shards() {
  const std::uint64_t version = trainable_version(root_);
  if (trainable_version_ == version) {
    return;
  }
  std::vector<FlatShard> added;
  for (FlatShard& shard : flat_shards(root_)) {
    if (shard.gradients.defined() &&
        known_shards_.insert(shard.parameters.storage().unsafeGetStorageImpl())
            .second) {
      added.push_back(std::move(shard));
    }
  }
  if (!added.empty()) {
    add_shards(std::move(added));
  }
  trainable_version_ = version;
}

void AdamW::add_shards(std::vector<FlatShard> flats) {
  std::shared_ptr<MomentPager> pager;
  if (options_.offload) {
    std::vector<MomentPager::Shard> sizes;
    for (const FlatShard& flat : flats) {
      sizes.push_back({flat.parameters.numel(), moments_dtype(flat)});
    }
    pager = std::make_shared<MomentPager>(*options_.offload, sizes);
    pagers_.push_back(pager);
  }
  for (std::size_t i = 0; i < flats.size(); ++i) {
    const FlatShard& flat = flats[i];
    const auto options = flat.parameters.options().dtype(moments_dtype(flat));
    const std::int64_t numel = flat.parameters.numel();
    if (!flat.on_host) {
      state_bytes_ +=
          2 * numel * static_cast<std::int64_t>(options.dtype().itemsize());
    }
    shards_.push_back({.unit = flat.unit,
                       .parameters = flat.parameters,
                       .gradients = flat.gradients,
                       .paged_parameters = flat.paged_parameters,
                       .paged_gradients = flat.paged_gradients,
                       .copy = steps_copy(flat) ? flat.copy : nullptr,
                       .moments = pager ? make_paged_moments(pager, i)
                                        : make_resident_moments(numel, options),
                       .ranges = ranges_of(flat)});
  }
}

/// Cuts the shard between neighbours that differ in decay. What lies between
/// pieces is padding: zero, and stays so.
std::vector<AdamW::Range> AdamW::ranges_of(const FlatShard& flat) const {
  std::vector<Range> result;
  for (std::size_t i = 0; i < flat.pieces.size(); ++i) {
    const LocalParameter& piece = flat.pieces[i];
    const bool decays = !options_.decays || options_.decays(piece);
    if (result.empty() || result.back().decays != decays) {
      result.emplace_back();
      result.back().begin = flat.offsets[i];
      result.back().decays = decays;
    }
    Range& range = result.back();
    range.end = flat.offsets[i] + piece.piece.numel();
    range.pieces.push_back(piece);
    range.offsets.push_back(flat.offsets[i]);
  }
  return result;
}

/// One range a piece, with the state that it has.
std::vector<AdamW::Range> AdamW::split(const Range& range) {
  std::vector<Range> result;
  for (std::size_t i = 0; i < range.pieces.size(); ++i) {
    result.push_back({.begin = range.offsets[i],
                      .end = range.offsets[i] + range.pieces[i].piece.numel(),
                      .pieces = {range.pieces[i]},
                      .offsets = {range.offsets[i]},
                      .decays = range.decays,
                      .steps = range.steps});
  }
  return result;
}

/// A parameter without a gradient is not updated, as in torch::optim: its
/// neighbours then need ranges of their own.
void AdamW::split_where_gradients_differ(Shard& shard) {
  std::vector<Range> result;
  for (Range& range : shard.ranges) {
    const auto with =
        std::count_if(range.pieces.begin(), range.pieces.end(), has_gradient);
    if (with == 0 || with == static_cast<std::ptrdiff_t>(range.pieces.size())) {
      result.push_back(std::move(range));
      continue;
    }
    std::vector<Range> parts = split(range);
    std::move(parts.begin(), parts.end(), std::back_inserter(result));
  }
  shard.ranges = std::move(result);
}

void AdamW::step(double gradient_scale) {
  settle(root_);  // peers may read what an evaluation left whole
  step_shards(nullptr, gradient_scale);
}

void AdamW::step_unit(const std::string& unit, double gradient_scale) {
  step_shards(&unit, gradient_scale);
}

/// Of one unit; null: of all.
void AdamW::step_shards(const std::string* unit, double gradient_scale) {
  const at::NoGradGuard no_grad;
  add_new_shards();
  const std::shared_ptr<PagedArrays> pages = offloaded_shards(root_);
  std::optional<PagedArrays::BufferedUse> use;
  if (pages) {
    use.emplace(*pages);
  }
  for (Shard& shard : shards_) {
    if (unit == nullptr || shard.unit == *unit) {
      step(shard, gradient_scale);
    }
  }
  if (use) {
    use->close();
  }
}

void AdamW::step(Shard& shard, double gradient_scale) {
  split_where_gradients_differ(shard);
  std::vector<const Range*> due;
  for (Range& range : shard.ranges) {
    if (has_gradient(range.pieces.front())) {
      ++range.steps;  // the same on all ranks, of those that own nothing too
      due.push_back(&range);
    }
  }
  if (due.empty()) {
    return;
  }
  ShardCursor parameters(shard.parameters, shard.paged_parameters, Use::Changed,
                         shard_order_);
  ShardCursor gradients(shard.gradients, shard.paged_gradients, Use::Unchanged,
                        shard_order_);
  shard.moments->visit([&](const MomentStretch& stretch) {
    for (std::int64_t begin = stretch.begin; begin < stretch.end;) {
      const std::int64_t end =
          std::min({stretch.end, parameters.end_of_run(begin),
                    gradients.end_of_run(begin)});
      const auto moment = [&](const at::Tensor& of_stretch) {
        return of_stretch.narrow(0, begin - stretch.begin, end - begin);
      };
      const Operands operands{
          begin,
          parameters.at(begin, end),
          gradients.at(begin, end),
          moment(stretch.first),
          moment(stretch.second),
          shard.copy ? shard.copy->values.narrow(0, begin, end - begin)
                     : at::Tensor()};
      for (const Range* range : due) {
        update(operands, *range, gradient_scale);
      }
      begin = end;
    }
  });
  parameters.finish();
  gradients.finish();
  if (shard.copy != nullptr && due.size() == shard.ranges.size()) {
    shard.copy->state = CopyInPlace::State::Stepped;
  }
}

std::optional<AdamW::Moments> AdamW::moments(const std::string& parameter) {
  const at::NoGradGuard no_grad;
  add_new_shards();
  for (Shard& shard : shards_) {
    for (const Range& range : shard.ranges) {
      for (std::size_t i = 0; i < range.pieces.size(); ++i) {
        if (range.pieces[i].name == parameter) {
          const MomentStretch all = shard.moments->whole();
          const std::int64_t numel = range.pieces[i].piece.numel();
          return Moments{
              .first = all.first.narrow(0, range.offsets[i], numel),
              .second = all.second.narrow(0, range.offsets[i], numel),
              .steps = range.steps};
        }
      }
    }
  }
  return std::nullopt;
}

void AdamW::set_steps(const std::map<std::string, std::int64_t>& steps) {
  for (Shard& shard : shards_) {
    std::vector<Range> result;
    for (Range& range : shard.ranges) {
      const auto steps_of = [&](const LocalParameter& piece) {
        const auto found = steps.find(piece.name);
        return found == steps.end() ? range.steps : found->second;
      };
      const std::int64_t first = steps_of(range.pieces.front());
      const bool same = std::all_of(range.pieces.begin(), range.pieces.end(),
                                    [&](const LocalParameter& piece) {
                                      return steps_of(piece) == first;
                                    });
      std::vector<Range> parts =
          same ? std::vector<Range>{range} : split(range);
      for (Range& part : parts) {
        part.steps = steps_of(part.pieces.front());
        result.push_back(std::move(part));
      }
    }
    shard.ranges = std::move(result);
  }
}

void AdamW::zero_grad() {
  root_.zero_grad(/*set_to_none=*/true);
}

}  // namespace accordion
