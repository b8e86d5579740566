// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion::detail {

/// What a checkpoint has of the optimizer's state of one parameter.
struct SavedState {
  std::map<std::string, std::string> fields;  ///< with the name in the index
  std::map<std::string, std::int64_t> counts;
};

/// The states in a checkpoint, by FQN.
class SavedStates {
 public:
  explicit SavedStates(const CheckpointReader& reader);

  /// That of a parameter, under whichever of its names; null where it has none.
  [[nodiscard]] const SavedState* find(const std::string& parameter) const;

  /// Throws CheckpointError where an optimizer keeps other fields than those
  /// that are saved.
  void check_fields(const LocalParameter& parameter, const SavedState& saved,
                    OptimizerStateAccess& optimizer) const;

 private:
  const CheckpointReader& reader_;
  std::map<std::string, SavedState> states_;
};

}  // namespace accordion::detail
