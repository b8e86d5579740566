// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/checkpoint/shard_file.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

/// How a save went.
struct SaveResult {
  std::filesystem::path path;
  std::string error;  ///< empty: the checkpoint is complete and on the disk
  std::string after_commit_error;   ///< what after_commit threw
  std::int64_t bytes = 0;           ///< that this rank wrote
  double blocked_seconds = 0.0;     ///< that this rank's caller waited
  double background_seconds = 0.0;  ///< that writing took meanwhile
};

/// Saves checkpoints of one module while training goes on.
///
/// // [Note: saving in the background]
/// A save has three parts. start() copies what is saved to memory of its own. A
/// thread of each rank then writes it to the rank's file: it talks to nobody.
/// When all have, which poll() learns, ranks send rank 0 what they wrote, whose
/// thread writes the index and renames the folder, which makes the checkpoint.
/// All collectives are in start(), poll() and finish(), which ranks call at the
/// same points of their program, as they call everything that communicates.
///
/// Memory   a copy of what this rank saves, kept from one save to the next, and
///          8 MiB while it is written
/// Threads  one caller; one thread of its own
/// Lifetime `root` and `optimizer` outlive it
class CheckpointSaver {
 public:
  /// `optimizer` null: the model alone.
  CheckpointSaver(torch::nn::Module& root, OptimizerStateAccess* optimizer);
  /// Abandons a save that is in flight: there will be no such checkpoint.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  struct Request {
    std::filesystem::path path;
    CheckpointValues values = {};
    /// Both are called on rank 0, by the thread that makes the checkpoint
    /// complete, before that and after. What the first throws is the save's
    /// error.
    std::function<void()> before_commit = {};
    std::function<void()> after_commit = {};
  };

  /// Starts a save; returns once this rank's part was copied.
  ///
  /// Requires  no save is in flight; between passes; every rank
  /// Comm      one all-gather of texts: whether rank 0 could make the folder
  /// Throws    CheckpointError on every rank where it could not; CommError
  void start(Request request);
  /// The same, without a copy; returns when the checkpoint is complete.
  SaveResult save(Request request);

  [[nodiscard]] bool in_flight() const { return save_ != nullptr; }
  /// Carries a save on where all ranks are ready to; its result once it is
  /// over. Does not wait for disks.
  ///
  /// Requires  in_flight(); every rank
  /// Comm      one all-gather of 4 bytes a rank, and another of texts when a
  ///           part is over
  /// Throws    CommError; failed writes are in the result, the same error on
  ///           every rank
  std::optional<SaveResult> poll();
  /// Waits until the save in flight is over.
  ///
  /// Comm  as poll()
  SaveResult finish();

 private:
  struct Save;

  void begin(Request request, bool copy);
  void write_shard_of_rank();
  void commit_on_rank_0(std::vector<std::string> reports);
  std::optional<SaveResult> advance();
  SaveResult end(std::string error);

  torch::nn::Module& root_;
  OptimizerStateAccess* optimizer_;
  std::vector<std::byte> staging_;
  std::unique_ptr<Save> save_;
};

}  // namespace accordion
