// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/shard_moments.h"

#include <utility>

#include <ATen/ops/zeros.h>

namespace accordion {

namespace {

class ResidentMoments final : public ShardMoments {
 public:
  ResidentMoments(std::int64_t numel, at::TensorOptions options)
      : all_{.end = numel,
             .first = at::zeros({numel}, options),
             .second = at::zeros({numel}, options)} {}

  void visit(const std::function<void(const MomentStretch& stretch)>& update)
      override {
    update(all_);
  }

  MomentStretch whole() override { return all_; }

 private:
  MomentStretch all_;
};

}  // namespace

std::unique_ptr<ShardMoments> make_resident_moments(std::int64_t numel,
                                                    at::TensorOptions options) {
  return std::make_unique<ResidentMoments>(numel, std::move(options));
}

}  // namespace accordion
