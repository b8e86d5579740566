// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/load_checkpoint.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/load_target.h"
#include "accordion/checkpoint/rank_outcomes.h"
#include "accordion/checkpoint/saved_state.h"

namespace accordion {

namespace {

using detail::LoadTarget;
using detail::SavedState;

/// One rank's part of a load.
class Loader {
 public:
  Loader(torch::nn::Module& root, OptimizerStateAccess* optimizer,
         const std::filesystem::path& path)
      : root_(root), optimizer_(optimizer), reader_(path), states_(reader_) {}

  /// Finds everything, and changes nothing.
  void plan(const LoadOptions& options) {
    targets_ = detail::model_targets(root_, reader_, options, result_);
    if (optimizer_ != nullptr) {
      plan_optimizer();
    }
    for (const auto& [name, value] : reader_.index().values) {
      result_.values.emplace(name, value);
    }
  }

  LoadResult read() {
    for (const LoadTarget& target : targets_) {
      detail::read_target(reader_, target);
    }
    if (optimizer_ != nullptr) {
      read_optimizer();
    }
    read_random_state();
    result_.bytes_read = reader_.bytes_read();
    return std::move(result_);
  }

 private:
  void plan_optimizer() {
    for (const LocalParameter& local : local_parameters(root_)) {
      if (!optimizer_->steps(local)) {
        continue;
      }
      if (const SavedState* saved = states_.find(local.name)) {
        states_.check_fields(local, *saved, *optimizer_);
      } else {
        result_.fresh_state.push_back(local.name);
      }
    }
  }

  void read_optimizer() {
    std::map<std::string, std::map<std::string, std::int64_t>> counts;
    for (const LocalParameter& local : local_parameters(root_)) {
      if (!optimizer_->steps(local)) {
        continue;
      }
      if (const SavedState* saved = states_.find(local.name)) {
        read_state(local, *saved);
        counts.emplace(local.name, saved->counts);
      } else {
        optimizer_->reset(local);
      }
    }
    optimizer_->set_counts(counts);
  }

  void read_state(const LocalParameter& local, const SavedState& saved) {
    for (const auto& [field, tensor] : optimizer_->make(local).tensors) {
      const bool is_scalar = tensor.dim() == 0;
      const LoadTarget target{
          saved.fields.at(field),
          is_scalar ? std::vector<std::int64_t>{} : local.global_shape,
          is_scalar ? 0 : local.begin, tensor.view({-1})};
      detail::check_target(reader_, target);
      detail::read_target(reader_, target);
    }
  }

  /// At another number of ranks nobody's numbers are right.
  void read_random_state() {
    Communicator& world = world_communicator(root_);
    const std::string name = fmt::format("rng/{}", world.rank());
    if (reader_.index().world_size != world.world_size() ||
        reader_.find(name) == nullptr) {
      return;
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    const at::Tensor state = generator.get_state();
    const LoadTarget target{name, state.sizes().vec(), 0, state};
    detail::check_target(reader_, target);
    detail::read_target(reader_, target);
    generator.set_state(state);
    result_.random_state = true;
  }

  torch::nn::Module& root_;
  OptimizerStateAccess* optimizer_;
  CheckpointReader reader_;
  detail::SavedStates states_;
  std::vector<LoadTarget> targets_;
  LoadResult result_;
};

}  // namespace

LoadResult load_checkpoint(torch::nn::Module& root,
                           OptimizerStateAccess* optimizer,
                           const std::filesystem::path& path,
                           const LoadOptions& options) {
  const at::NoGradGuard no_grad;
  Communicator& world = world_communicator(root);
  std::optional<Loader> loader;
  detail::require_success(world, "load_checkpoint", path, [&] {
    adopt_assignments(root);  // not over what is loaded
    loader.emplace(root, optimizer, path);
    loader->plan(options);
  });
  LoadResult result;
  detail::require_success(world, "load_checkpoint", path,
                          [&] { result = loader->read(); });
  return result;
}

}  // namespace accordion
