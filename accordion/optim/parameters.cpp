// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/parameters.h"

#include <unordered_set>

namespace accordion {

std::vector<torch::Tensor> parameters(const torch::nn::Module& root) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<torch::Tensor> result;
  for (torch::Tensor& parameter : root.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
      result.push_back(std::move(parameter));
    }
  }
  return result;
}

}  // namespace accordion
