// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/offloaded_activations.h"

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

namespace accordion {

namespace {

/// Below, a block on a disk is more than the tensor.
constexpr std::size_t kLeastBytes = kOffloadAlignment;

}  // namespace

class OffloadedActivations::Kept final : public KeptTensor {
 public:
  Kept(std::shared_ptr<OffloadedActivations> owner, int array,
       const at::Tensor& tensor)
      : owner_(std::move(owner)),
        array_(array),
        sizes_(tensor.sizes().vec()),
        dtype_(tensor.scalar_type()) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() override { owner_->give_back(array_); }

  at::Tensor get() override {
    at::Tensor tensor = at::empty(sizes_, at::TensorOptions(dtype_));
    owner_->pages_.read(
        array_, std::span(static_cast<std::byte*>(tensor.mutable_data_ptr()),
                          static_cast<std::size_t>(tensor.nbytes())));
    owner_->read_ahead_of(array_);
    return tensor;
  }

 private:
  std::shared_ptr<OffloadedActivations> owner_;
  int array_;
  std::vector<std::int64_t> sizes_;
  at::ScalarType dtype_;
};

OffloadedActivations::OffloadedActivations(const OffloadTarget& target)
    : pages_(target, "fully_shard") {}

std::unique_ptr<KeptTensor> OffloadedActivations::keep(
    const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_cpu() || !tensor.is_contiguous() ||
      tensor.nbytes() < kLeastBytes) {
    return nullptr;
  }
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  const int array = take_array(bytes);
  kept_.push_back(array);
  auto kept = std::make_unique<Kept>(shared_from_this(), array, tensor);
  pages_.write(array,
               std::span(static_cast<const std::byte*>(tensor.const_data_ptr()),
                         static_cast<std::size_t>(bytes)));
  return kept;
}

int OffloadedActivations::take_array(std::int64_t bytes) {
  std::vector<int>& free = free_[bytes];
  if (free.empty()) {
    return pages_.add(bytes);
  }
  const int array = free.back();
  free.pop_back();
  return array;
}

void OffloadedActivations::give_back(int array) {
  std::erase(kept_, array);
  free_[pages_.array_bytes(array)].push_back(array);
}

/// What was kept before it, the latest first: backward comes there next.
void OffloadedActivations::read_ahead_of(int array) {
  const auto place = std::ranges::find(kept_, array);
  for (auto next = place; next != kept_.begin();) {
    --next;
    if (!pages_.prefetch(*next, pages_.blocks().num_buffers())) {
      return;
    }
  }
}

}  // namespace accordion
