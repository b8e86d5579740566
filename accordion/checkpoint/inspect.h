// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "accordion/checkpoint/tensor_source.h"
#include "accordion/checkpoint/tensor_statistics.h"

namespace accordion {

struct InspectOptions {
  std::string tensor = {};  ///< name or alias of the only one; empty: all
  bool verify = true;       ///< read what a checkpoint holds, against checksums
  bool with_statistics = false;  ///< read every element of the tensors
};

/// A tensor, and where it is.
struct TensorReport {
  TensorInfo info;
  std::vector<std::string> aliases;  ///< further names, of shared parameters
  std::vector<TensorPiece> pieces;
  /// Nothing where none were asked for, or the dtype has no numbers.
  std::optional<TensorStatistics> statistics;
};

struct FileReport {
  std::string name;
  std::int64_t bytes = 0;
  std::optional<int> rank;  ///< that wrote it
};

/// What was read and found to be as it was written.
struct Verification {
  std::int64_t bytes = 0;
  double seconds = 0.0;
};

/// All tensors of one kind: "model", "optimizer", "rng", or "weights" for names
/// without a kind.
struct KindTotal {
  std::int64_t tensors = 0;
  std::int64_t numel = 0;
  std::int64_t bytes = 0;
};

/// What a checkpoint or a file of weights holds.
struct InspectReport {
  std::string path;
  std::int64_t newest_of = 0;  ///< see TensorSource
  bool is_checkpoint = false;
  std::optional<std::int64_t> step;  ///< where a value of that name says it
  int world_size = 1;                ///< ranks that wrote it
  CheckpointValues values;           ///< of weights: their metadata
  std::vector<FileReport> files;
  std::optional<Verification> verified;  ///< nothing where it was not done
  std::map<std::string, KindTotal> totals;
  bool with_statistics = false;
  std::vector<TensorReport> tensors;  ///< in alphabetical order
};

/// Looks at a source. Asked for one tensor, it verifies and describes only
/// that; totals and files are of all.
///
/// Memory  one chunk of a tensor beside the report
/// Throws  CheckpointError where something is damaged, or there is no such
///         tensor
InspectReport inspect(TensorSource& source, const InspectOptions& options);

/// For people: what there is, a table of tensors, totals. Texts among the
/// values that are long are given as a number of lines, or whole.
std::string to_text(const InspectReport& report, bool with_whole_values);

/// The first tensor of a report for people: where its elements lie, and a bar a
/// rank. Bars and their labels are 72 characters wide.
std::string to_tensor_text(const InspectReport& report);

/// The report as one JSON object, for programs; values are whole.
std::string to_json(const InspectReport& report);

}  // namespace accordion
