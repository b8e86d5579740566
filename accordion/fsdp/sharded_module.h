// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/comm/communicator.h"
#include "accordion/fsdp/copy_in_place.h"
#include "accordion/offload/paged_arrays.h"
#include "accordion/schedule/step_schedule.h"

// What can be asked of a module that fully_shard has sharded. Every function
// here throws c10::ValueError when it has not. Those that list pieces make
// pieces of what is whole first, as settle does.
namespace accordion {

/// This rank's piece of one parameter of a sharded module.
struct LocalParameter {
  std::string name;  ///< FQN
  std::vector<std::int64_t> global_shape;
  std::int64_t begin = 0;  ///< first element owned, in row-major order
  std::int64_t end = 0;    ///< one past the last; begin == end owns nothing
  torch::Tensor piece;     ///< [end - begin], stored dtype; writes reach the
                           ///< parameter, if its unit is sharded
  torch::Tensor gradient;  ///< [end - begin]; undefined where `.grad()` is
  /// The module's own tensor [local shape], which optimizers see; its `.grad()`
  /// is the gradient of the piece.
  torch::Tensor parameter;
  bool requires_grad = true;
  /// Ranks that hold the same elements (1 where sharded over all ranks), and
  /// which of them this one is.
  int replicas = 1;
  int replica = 0;
};

/// The pieces of a sharded module, in the order of units and parameters; each
/// shared parameter once, under its first name.
///
/// Throws c10::ValueError when `root` was not passed to fully_shard
std::vector<LocalParameter> local_parameters(const torch::nn::Module& root);

/// Makes pieces of what is still whole, as after a forward that no backward
/// followed, and waits until they may be written to: the functions here that
/// list pieces do so by themselves. Does nothing inside forward or backward.
///
/// Requires  every rank calls it, where something is still whole
/// Throws    c10::ValueError when `root` was not passed to fully_shard;
///           CommError
void settle(const torch::nn::Module& root);

/// Brings what was assigned to parameters since the last pass (set_data, a
/// `.grad()` of the caller's) to the pieces, as the next pass would do first.
///
/// Throws c10::ValueError for another shape or dtype
void adopt_assignments(torch::nn::Module& root);

/// Parameters that fully_shard was told to ignore, by FQN: whole on every rank,
/// which Accordion does not keep alike. Shared ones once.
std::vector<std::pair<std::string, torch::Tensor>> ignored_parameters(
    const torch::nn::Module& root);

/// Further FQNs of shared parameters, each with the one that local_parameters
/// or ignored_parameters lists.
std::map<std::string, std::string> parameter_aliases(
    const torch::nn::Module& root);

/// A flat shard in a store: an array of `pages`.
struct PagedShard {
  std::shared_ptr<PagedArrays> pages;
  int array = 0;
};

/// A unit's parameters of one dtype and requires_grad, as this rank holds them:
/// what an optimizer that works on flat memory needs. See UnitLayout.
struct FlatShard {
  std::string unit = {};          ///< FQN; "" for the root
  torch::Tensor parameters = {};  ///< [numel_per_rank], padding is zero
  torch::Tensor gradients = {};   ///< [numel_per_rank], undefined where frozen
  /// Where they are offloaded (FsdpOptions::offload): the tensors lie in
  /// mappings, and buffers are the fast way ([Note: two ways to the bytes]).
  std::optional<PagedShard> paged_parameters = {};
  std::optional<PagedShard> paged_gradients = {};
  /// Both lie in memory of the host, of a unit on a device.
  bool on_host = false;
  /// With FsdpOptions::copies_in_place. Whoever writes to the parameters writes
  /// this too and sets its state to Stepped, or leaves both to the next gather.
  CopyInPlace* copy = nullptr;
  /// [1] fp64: the sum of their squares as the last reduction left them; on
  /// their device, where it is read in the order of its stream.
  torch::Tensor gradient_squares = {};
  /// Other ranks of shard_communicator hold the rest; false: each holds all.
  bool sharded = true;
  std::vector<LocalParameter> pieces = {};  ///< views of both, in order
  std::vector<std::int64_t> offsets = {};   ///< of each piece in the shard
};

/// The shards of a sharded module, unit by unit.
std::vector<FlatShard> flat_shards(const torch::nn::Module& root);

/// What of the shards is offloaded, with what it moves and how; null without
/// FsdpOptions::offload. May be called anywhere.
std::shared_ptr<PagedArrays> offloaded_shards(const torch::nn::Module& root);

/// The same of activations (ActivationCheckpointing::offload).
std::shared_ptr<PagedArrays> offloaded_activations(
    const torch::nn::Module& root);

/// Grows when a pass began with other parameters trainable than the one before:
/// flat_shards may then have gradients where it had none. Cheap.
std::uint64_t trainable_version(const torch::nn::Module& root);

/// All ranks of the mesh that the module is sharded over.
Communicator& world_communicator(const torch::nn::Module& root);

/// The ranks that together hold one copy of the parameters.
Communicator& shard_communicator(const torch::nn::Module& root);

/// Gathers one parameter in its global shape, on every rank.
///
/// Comm   one all-gather of the section that holds it; called by every rank
/// Throws c10::ValueError for a name that is not a parameter's
torch::Tensor full_parameter(const torch::nn::Module& root,
                             std::string_view name);
/// The same for its gradient; zero where `.grad()` is undefined.
torch::Tensor full_gradient(const torch::nn::Module& root,
                            std::string_view name);

/// The schedule that the steps of a sharded module follow; empty until its
/// first step has been recorded.
StepSchedule step_schedule(const torch::nn::Module& root);

/// Replaces the schedule, on every rank alike, from the next step on.
///
/// Throws c10::ValueError when validate(schedule) finds a fault
void set_step_schedule(torch::nn::Module& root, StepSchedule schedule);

/// What a rank holds of a sharded module now, in bytes, padding included.
struct ShardedBytes {
  std::int64_t parameters = 0;  ///< shards in memory, in the stored dtype
  /// Of the shards; with FsdpOptions::step_in_backward or ::offload, the slots
  /// in which they wait for their step, or to be offloaded.
  std::int64_t gradients = 0;
  /// Of those, buffers through which offloaded shards pass: of parameters where
  /// they are offloaded, else of gradients.
  std::int64_t offload_buffers = 0;
  /// Buffers through which offloaded activations pass.
  std::int64_t activation_buffers = 0;
  /// Copies of replicated parameters in param_dtype, what neighbours keep
  /// between forward and backward (FsdpOptions::reshard_to_ranks), and this
  /// rank's part of what FsdpOptions::copies_in_place keeps.
  std::int64_t whole_copies = 0;
  /// Slots for unsharded parameters, none for units that are gathered in place,
  /// and for gradients on their way to a reduction. Held from fully_shard on,
  /// whether in use or not.
  std::int64_t parameter_slots = 0;
  std::int64_t gradient_slots = 0;
  /// Of those, in use: by units that are unsharded, and by whole gradients.
  std::int64_t unsharded_parameters = 0;
  std::int64_t whole_gradients = 0;
};
/// May be called anywhere, also between forward and backward.
ShardedBytes sharded_bytes(const torch::nn::Module& root);

}  // namespace accordion
