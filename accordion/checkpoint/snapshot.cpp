// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/snapshot.h"

#include <cstring>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include "accordion/checkpoint/tensor_dtype.h"

namespace accordion::detail {

namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          tensor.nbytes()};
}

class Collector {
 public:
  explicit Collector(torch::nn::Module& root)
      : root_(root),
        rank_(world_communicator(root).rank()),
        world_size_(world_communicator(root).world_size()) {}

  void add_model() {
    for (const LocalParameter& local : local_parameters(root_)) {
      add_piece("model/" + local.name, local, local.piece);
    }
    for (const auto& [name, tensor] : ignored_parameters(root_)) {
      add_part("model/" + name, tensor.sizes().vec(), 0, tensor.reshape({-1}),
               {rank_, world_size_});
    }
    for (const auto& item : root_.named_buffers()) {
      if (item.value().defined()) {
        add_from_rank_0("model/" + item.key(), item.value());
      }
    }
    result_.aliases = parameter_aliases(root_);
  }

  void add_optimizer(OptimizerStateAccess& optimizer) {
    result_.values["optimizer/type"] = optimizer.type();
    for (const LocalParameter& local : local_parameters(root_)) {
      const auto state = optimizer.find(local);
      if (!state) {
        continue;
      }
      for (const auto& [field, tensor] : state->tensors) {
        const std::string name = "optimizer/" + field + "/" + local.name;
        if (tensor.dim() == 0) {
          add_from_rank_0(name, tensor);
        } else {
          add_piece(name, local, tensor);
        }
      }
      for (const auto& [count, value] : state->counts) {
        result_.values["optimizer/" + count + "/" + local.name] = value;
      }
    }
  }

  void add_random_state() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    const at::Tensor state = generator.get_state();
    add("rng/" + std::to_string(rank_), state.sizes().vec(), 0, state);
  }

  Snapshot take() { return std::move(result_); }

 private:
  /// Which of the ranks that hold the same elements this one is.
  struct Replica {
    std::int64_t index;
    std::int64_t count;
  };

  void add_piece(const std::string& name, const LocalParameter& local,
                 const at::Tensor& piece) {
    const std::int64_t numel = local.end - local.begin;
    TORCH_CHECK_VALUE(piece.numel() == numel, "[save_checkpoint] '", name,
                      "' has ", piece.numel(),
                      " elements on this rank, whose piece has ", numel);
    add_part(name, local.global_shape, local.begin, piece,
             {local.replica, local.replicas});
  }

  /// Of elements that several ranks hold, each saves a part of its own.
  void add_part(const std::string& name,
                const std::vector<std::int64_t>& global_shape,
                std::int64_t begin, const at::Tensor& piece, Replica replica) {
    const std::int64_t first = piece.numel() * replica.index / replica.count;
    const std::int64_t last =
        piece.numel() * (replica.index + 1) / replica.count;
    const bool is_empty = c10::multiply_integers(global_shape) == 0;
    if (first < last || (is_empty && rank_ == 0)) {
      add(name, global_shape, begin + first, piece.slice(0, first, last));
    }
  }

  void add_from_rank_0(const std::string& name, const at::Tensor& tensor) {
    if (rank_ == 0) {
      add(name, tensor.sizes().vec(), 0, tensor);
    }
  }

  void add(const std::string& name, std::vector<std::int64_t> shape,
           std::int64_t begin, const at::Tensor& tensor) {
    const at::Tensor local = tensor.detach().cpu().contiguous();
    result_.ranges.push_back({.name = name,
                              .dtype = safetensors_dtype(local.scalar_type()),
                              .shape = std::move(shape),
                              .begin = begin,
                              .end = begin + local.numel(),
                              .bytes = bytes_of(local)});
    result_.owners.push_back(local);
  }

  torch::nn::Module& root_;
  int rank_;
  int world_size_;
  Snapshot result_;
};

}  // namespace

std::int64_t Snapshot::bytes() const {
  std::int64_t bytes = 0;
  for (const TensorRange& range : ranges) {
    bytes += static_cast<std::int64_t>(range.bytes.size());
  }
  return bytes;
}

Snapshot take_snapshot(torch::nn::Module& root,
                       OptimizerStateAccess* optimizer) {
  const at::NoGradGuard no_grad;
  adopt_assignments(root);
  Collector collector(root);
  collector.add_model();
  if (optimizer != nullptr) {
    collector.add_optimizer(*optimizer);
  }
  collector.add_random_state();
  return collector.take();
}

void stage(Snapshot& snapshot, std::vector<std::byte>& staging) {
  const auto needed = static_cast<std::size_t>(snapshot.bytes());
  if (staging.size() < needed) {
    staging.resize(needed);
  }
  std::size_t offset = 0;
  for (TensorRange& range : snapshot.ranges) {
    std::memcpy(staging.data() + offset, range.bytes.data(),
                range.bytes.size());
    range.bytes = {staging.data() + offset, range.bytes.size()};
    offset += range.bytes.size();
  }
  snapshot.owners.clear();
}

}  // namespace accordion::detail
