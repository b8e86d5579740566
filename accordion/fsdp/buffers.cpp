// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/buffers.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

namespace accordion {

namespace {

template <class... Impl>
bool is_any_of(const torch::nn::Module& module) {
  return (... || (dynamic_cast<const Impl*>(&module) != nullptr));
}

}  // namespace

bool keeps_stored_dtype(const torch::nn::Module& module) {
  using namespace torch::nn;
  return is_any_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl,
                   InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl>(
      module);
}

void cast_buffers(const torch::nn::Module& root, c10::ScalarType dtype) {
  for (const auto& module : root.modules(/*include_self=*/true)) {
    if (keeps_stored_dtype(*module)) {
      continue;
    }
    for (auto& buffer : module->buffers(/*recurse=*/false)) {
      if (buffer.defined() && buffer.is_floating_point()) {
        buffer.set_data(buffer.to(dtype));
      }
    }
  }
}

}  // namespace accordion
