// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/whole_update.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

using Update =
    std::function<at::Tensor(std::size_t index, const at::Tensor& whole)>;

std::int64_t numel_of(const LocalParameter& parameter) {
  return c10::multiply_integers(parameter.global_shape);
}

void check_values(const std::vector<LocalParameter>& parameters,
                  const std::vector<at::Tensor>& values) {
  TORCH_CHECK_VALUE(values.size() == parameters.size(), "[update_whole] ",
                    values.size(), " values for ", parameters.size(),
                    " parameters; give one each");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t numel = parameters[i].end - parameters[i].begin;
    TORCH_CHECK_VALUE(values[i].dim() == 1 && values[i].numel() == numel &&
                          values[i].scalar_type() == values[0].scalar_type(),
                      "[update_whole] the value for parameter '",
                      parameters[i].name, "' is ", values[i].sizes(), " of ",
                      values[i].scalar_type(), "; expected this rank's piece [",
                      numel, "] of ", values[0].scalar_type(),
                      ", the dtype of the first");
  }
}

/// One round: up to world_size parameters, one for each owner.
class Round {
 public:
  Round(Communicator& communicator,
        const std::vector<LocalParameter>& parameters, std::size_t first,
        const at::TensorOptions& options)
      : communicator_(communicator), parameters_(parameters), first_(first) {
    const auto world = static_cast<std::size_t>(communicator.world_size());
    count_ = std::min(world, parameters.size() - first);
    for (std::size_t i = 0; i < count_; ++i) {
      row_numel_ = std::max(row_numel_, numel_of(parameter(i)));
    }
    rows_ = at::zeros({communicator.world_size(), row_numel_}, options);
    mine_ = at::empty({row_numel_}, options);
  }

  void run(std::vector<at::Tensor>& values, const Update& update) {
    for (std::size_t i = 0; i < count_; ++i) {
      piece_of(i).copy_(values[first_ + i]);
    }
    gather_to_owners();
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    if (rank < count_) {
      compute(rank, update);
    }
    send_back();
    for (std::size_t i = 0; i < count_; ++i) {
      values[first_ + i].copy_(piece_of(i));
    }
  }

 private:
  [[nodiscard]] const LocalParameter& parameter(std::size_t i) const {
    return parameters_[first_ + i];
  }
  /// This rank's elements in the row of parameter i.
  [[nodiscard]] at::Tensor piece_of(std::size_t i) const {
    return rows_[static_cast<std::int64_t>(i)].slice(0, parameter(i).begin,
                                                     parameter(i).end);
  }

  /// Every element is zero on all ranks but the one that holds it, so that the
  /// sum of the ranks' rows is the parameter, exactly.
  void gather_to_owners() {
    const DType dtype = to_dtype(rows_.scalar_type());
    const ReducePart part{.full = rows_.const_data_ptr(),
                          .full_dtype = dtype,
                          .local = mine_.mutable_data_ptr(),
                          .local_dtype = dtype,
                          .reduce_dtype = dtype,
                          .numel = row_numel_};
    communicator_.reduce_scatter_into({&part, 1}, nullptr, "update_whole")
        .wait();
  }

  void compute(std::size_t i, const Update& update) {
    const at::Tensor whole = mine_.narrow(0, 0, numel_of(parameter(i)))
                                 .view(parameter(i).global_shape);
    const at::Tensor result = update(first_ + i, whole);
    TORCH_CHECK_VALUE(result.sizes() == whole.sizes(),
                      "[update_whole] the update of parameter '",
                      parameter(i).name, "' returned ", result.sizes(),
                      "; expected its global shape ", whole.sizes());
    whole.copy_(result);
  }

  void send_back() {
    const DType dtype = to_dtype(rows_.scalar_type());
    const GatherPart part{.local = mine_.const_data_ptr(),
                          .local_dtype = dtype,
                          .full = rows_.mutable_data_ptr(),
                          .full_dtype = dtype,
                          .numel = row_numel_};
    communicator_.all_gather_into({&part, 1}, nullptr, "update_whole").wait();
  }

  Communicator& communicator_;
  const std::vector<LocalParameter>& parameters_;
  std::size_t first_;  // index of the round's first parameter
  std::size_t count_ = 0;
  std::int64_t row_numel_ = 0;  // of the largest parameter
  at::Tensor rows_;             // [world_size, row_numel]: row i is parameter i
  at::Tensor mine_;  // [row_numel]: the parameter that this rank owns
};

}  // namespace

void update_whole(const torch::nn::Module& root,
                  const std::vector<LocalParameter>& parameters,
                  std::vector<at::Tensor>& values, const Update& update) {
  check_values(parameters, values);
  const at::NoGradGuard no_grad;
  Communicator& communicator = shard_communicator(root);
  const auto world = static_cast<std::size_t>(communicator.world_size());
  for (std::size_t first = 0; first < parameters.size(); first += world) {
    Round(communicator, parameters, first, values[0].options())
        .run(values, update);
  }
}

}  // namespace accordion
