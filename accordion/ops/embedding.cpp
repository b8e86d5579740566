// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

namespace accordion::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Keeps and makes the tensors that LibTorch's does.
struct MetaEmbedding : torch::autograd::Function<MetaEmbedding> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight,
                            const at::Tensor& tokens) {
    ctx->save_for_backward({tokens});
    ctx->saved_data["shape"] = weight.sizes().vec();
    std::vector<int64_t> shape = tokens.sizes().vec();
    shape.push_back(weight.size(1));
    return at::empty(shape, weight.options());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {at::empty(ctx->saved_data["shape"].toIntVector(),
                      gradients[0].options()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(weight.dim() == 2, "[embedding] weight has shape ",
                    weight.sizes(), ": it must be [vocab, width].");
  return weight.is_meta() ? MetaEmbedding::apply(weight, tokens)
                          : at::embedding(weight, tokens);
}

}  // namespace accordion::ops
