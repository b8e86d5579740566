// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/weight_plan.h"

namespace accordion {

/// Writes the files of a plan into a folder, which must not have them yet:
/// tensors of the checkpoint under their planned names, converted to their
/// planned dtypes. Then reads the files back, and compares their headers with
/// the plan and every element with what was written.
///
/// Memory  16 MiB a thread, however large the model is
/// Throws  CheckpointError: damage in the checkpoint, a value that the planned
///         dtype cannot hold, a full disk, files that read back otherwise than
///         they were written
void copy_weights(const CheckpointReader& checkpoint, const WeightPlan& plan,
                  const std::filesystem::path& folder, int num_threads);

}  // namespace accordion
