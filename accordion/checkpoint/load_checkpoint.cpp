// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/load_checkpoint.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/rank_outcomes.h"
#include "accordion/checkpoint/tensor_dtype.h"

namespace accordion {

namespace {

constexpr std::string_view kModel = "model/";
constexpr std::string_view kOptimizer = "optimizer/";

/// Names in errors; more are counted.
constexpr std::size_t kMaxNamed = 8;

/// Elements of a tensor that are to be read to memory of this rank.
struct Target {
  std::string name;                 // as in the index
  std::vector<std::int64_t> shape;  // global
  std::int64_t begin = 0;
  at::Tensor into;  // [end - begin]
};

/// What the checkpoint has of a parameter's optimizer state.
struct SavedState {
  std::map<std::string, std::string> fields;  // with the name in the index
  std::map<std::string, std::int64_t> counts;
};

std::string some_of(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMaxNamed);
  std::string text = fmt::format(
      "'{}'",
      fmt::join(names.begin(),
                names.begin() + static_cast<std::ptrdiff_t>(count), "', '"));
  if (count < names.size()) {
    text += fmt::format(" and {} more", names.size() - count);
  }
  return text;
}

/// FIELD and FQN of "optimizer/FIELD/FQN".
std::pair<std::string, std::string> split_state_name(std::string_view name) {
  name.remove_prefix(kOptimizer.size());
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) {
    return {};
  }
  return {std::string(name.substr(0, slash)),
          std::string(name.substr(slash + 1))};
}

std::map<std::string, SavedState> saved_states(const CheckpointIndex& index) {
  std::map<std::string, SavedState> states;
  for (const auto& [name, tensor] : index.tensors) {
    if (name.starts_with(kOptimizer)) {
      const auto [field, parameter] = split_state_name(name);
      states[parameter].fields.emplace(field, name);
    }
  }
  for (const auto& [name, value] : index.values) {
    if (name.starts_with(kOptimizer) &&
        std::holds_alternative<std::int64_t>(value)) {
      const auto [count, parameter] = split_state_name(name);
      states[parameter].counts.emplace(count, std::get<std::int64_t>(value));
    }
  }
  return states;
}

class Loader {
 public:
  Loader(torch::nn::Module& root, OptimizerStateAccess* optimizer,
         const std::filesystem::path& path, const LoadOptions& options)
      : root_(root),
        optimizer_(optimizer),
        options_(options),
        reader_(path),
        place_(path.string()) {}

  /// Finds everything, and changes nothing.
  void plan() {
    plan_model();
    if (optimizer_ != nullptr) {
      plan_optimizer();
    }
    for (const auto& [name, value] : reader_.index().values) {
      result_.values.emplace(name, value);
    }
  }

  LoadResult read() {
    for (Target& target : targets_) {
      read(target);
    }
    read_optimizer();
    read_random_state();
    result_.bytes_read = reader_.bytes_read();
    return std::move(result_);
  }

 private:
  void plan_model() {
    const auto aliases = parameter_aliases(root_);
    std::set<std::string, std::less<>> known;
    for (const auto& [alias, name] : aliases) {
      known.insert(alias);
    }
    const auto add = [&](const std::string& name, Target target) {
      known.insert(name);
      if (reader_.find(target.name) == nullptr) {
        result_.missing.push_back(name);
        return;
      }
      check(target);
      // One that was saved under another of its names is no surprise.
      const auto alias = reader_.index().aliases.find(name);
      if (alias != reader_.index().aliases.end()) {
        known.insert(alias->second);
      }
      targets_.push_back(std::move(target));
    };
    for (const LocalParameter& local : local_parameters(root_)) {
      add(local.name, {std::string(kModel) + local.name, local.global_shape,
                       local.begin, local.piece});
    }
    for (const auto& [name, tensor] : ignored_parameters(root_)) {
      add(name, whole(name, tensor));
    }
    for (const auto& item : root_.named_buffers()) {
      if (item.value().defined()) {
        add(item.key(), whole(item.key(), item.value()));
      }
    }
    find_unexpected(known);
    check_names();
  }

  static Target whole(const std::string& name, const at::Tensor& tensor) {
    return {std::string(kModel) + name, tensor.sizes().vec(), 0,
            tensor.detach().view({-1})};
  }

  void find_unexpected(const std::set<std::string, std::less<>>& known) {
    for (const auto& [name, tensor] : reader_.index().tensors) {
      if (name.starts_with(kModel) &&
          !known.contains(std::string_view(name).substr(kModel.size()))) {
        result_.unexpected.push_back(name.substr(kModel.size()));
      }
    }
  }

  void check_names() const {
    if (!result_.missing.empty() && !options_.allow_missing) {
      throw CheckpointError(fmt::format(
          "[load_checkpoint] '{}' lacks {} parameters or buffers of the "
          "module: {}. Load into the model that was saved, or set "
          "LoadOptions::allow_missing to let them keep their values.",
          place_, result_.missing.size(), some_of(result_.missing)));
    }
    if (!result_.unexpected.empty() && !options_.allow_unexpected) {
      throw CheckpointError(fmt::format(
          "[load_checkpoint] '{}' holds {} parameters or buffers that the "
          "module lacks: {}. Load into the model that was saved, or set "
          "LoadOptions::allow_unexpected to leave them out.",
          place_, result_.unexpected.size(), some_of(result_.unexpected)));
    }
  }

  void check(const Target& target) const {
    const StoredTensor& stored = *reader_.find(target.name);
    if (stored.shape != target.shape) {
      throw CheckpointError(fmt::format(
          "[load_checkpoint] '{}', tensor '{}': saved with shape [{}], but the "
          "module has [{}].",
          place_, target.name, fmt::join(stored.shape, ", "),
          fmt::join(target.shape, ", ")));
    }
    const auto saved = detail::scalar_type_of(stored.dtype);
    const auto wanted = target.into.scalar_type();
    if (saved != wanted &&
        !(c10::isFloatingType(saved) && c10::isFloatingType(wanted))) {
      throw CheckpointError(fmt::format(
          "[load_checkpoint] '{}', tensor '{}': saved as {}, which is not "
          "converted to {}.",
          place_, target.name, stored.dtype, c10::toString(wanted)));
    }
  }

  /// The saved state of a parameter, under whichever of its names.
  [[nodiscard]] const SavedState* saved_state(const std::string& name) const {
    if (const auto found = states_.find(name); found != states_.end()) {
      return &found->second;
    }
    const auto alias = reader_.index().aliases.find(name);
    if (alias == reader_.index().aliases.end()) {
      return nullptr;
    }
    const auto found = states_.find(alias->second);
    return found == states_.end() ? nullptr : &found->second;
  }

  void plan_optimizer() {
    states_ = saved_states(reader_.index());
    for (const LocalParameter& local : local_parameters(root_)) {
      if (!optimizer_->steps(local)) {
        continue;
      }
      const SavedState* saved = saved_state(local.name);
      if (saved == nullptr) {
        result_.fresh_state.push_back(local.name);
      } else {
        check_fields(local, *saved);
      }
    }
  }

  void check_fields(const LocalParameter& local, const SavedState& saved) {
    std::vector<std::string> fields;
    for (const auto& [field, name] : saved.fields) {
      fields.push_back(field);
    }
    const auto kept = optimizer_->fields(local);
    if (fields != kept) {
      const auto type = reader_.index().values.find("optimizer/type");
      throw CheckpointError(fmt::format(
          "[load_checkpoint] '{}', parameter '{}': {} saved the fields [{}], "
          "but {} with its options keeps [{}]. Use the optimizer and options "
          "that it was saved with, or load the model alone.",
          place_, local.name,
          type == reader_.index().values.end()
              ? "the optimizer"
              : std::get<std::string>(type->second),
          fmt::join(fields, ", "), optimizer_->type(), fmt::join(kept, ", ")));
    }
  }

  void read_optimizer() {
    if (optimizer_ == nullptr) {
      return;
    }
    std::map<std::string, std::map<std::string, std::int64_t>> counts;
    for (const LocalParameter& local : local_parameters(root_)) {
      if (!optimizer_->steps(local)) {
        continue;
      }
      const SavedState* saved = saved_state(local.name);
      if (saved == nullptr) {
        optimizer_->reset(local);
        continue;
      }
      for (auto& [field, tensor] : optimizer_->make(local).tensors) {
        const bool is_scalar = tensor.dim() == 0;
        Target target{
            saved->fields.at(field),
            is_scalar ? std::vector<std::int64_t>{} : local.global_shape,
            is_scalar ? 0 : local.begin, tensor.view({-1})};
        check(target);
        read(target);
      }
      counts.emplace(local.name, saved->counts);
    }
    optimizer_->set_counts(counts);
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
    at::Tensor state = generator.get_state();
    Target target{name, state.sizes().vec(), 0, state};
    check(target);
    read(target);
    generator.set_state(state);
    result_.random_state = true;
  }

  /// Straight to where it is wanted, or by way of a buffer that is converted.
  void read(Target& target) {
    const auto stored =
        detail::scalar_type_of(reader_.find(target.name)->dtype);
    const bool straight = target.into.is_cpu() && target.into.is_contiguous() &&
                          target.into.scalar_type() == stored;
    if (straight) {
      return reader_.read(
          target.name, target.begin,
          {static_cast<std::byte*>(target.into.mutable_data_ptr()),
           target.into.nbytes()});
    }
    constexpr std::int64_t kBufferElements = 1 << 18;
    const at::Tensor buffer =
        at::empty({std::min(kBufferElements, target.into.numel())},
                  at::TensorOptions().dtype(stored));
    for (std::int64_t done = 0; done < target.into.numel();) {
      const at::Tensor part = buffer.narrow(
          0, 0, std::min(buffer.numel(), target.into.numel() - done));
      reader_.read(
          target.name, target.begin + done,
          {static_cast<std::byte*>(part.mutable_data_ptr()), part.nbytes()});
      target.into.narrow(0, done, part.numel()).copy_(part);
      done += part.numel();
    }
  }

  torch::nn::Module& root_;
  OptimizerStateAccess* optimizer_;
  const LoadOptions& options_;
  CheckpointReader reader_;
  std::string place_;
  std::vector<Target> targets_;
  std::map<std::string, SavedState> states_;
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
    loader.emplace(root, optimizer, path, options);
    loader->plan();
  });
  LoadResult result;
  detail::require_success(world, "load_checkpoint", path,
                          [&] { result = loader->read(); });
  return result;
}

}  // namespace accordion
