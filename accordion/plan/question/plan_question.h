// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accordion/plan/plan.h"
#include "accordion/plan/question/plan_settings.h"

namespace accordion::plan {

/// A question in the words of a command line.
struct PlanInput {
  /// A config.json, a folder that has one, or the usual name of a model; empty
  /// with `params`.
  std::string model = {};
  double params = 0.0;             ///< a Llama of about this size; 0: `model`
  std::string cluster = "8xH100";  ///< or a .toml file
  std::string deepspeed = {};      ///< a ds_config.json; empty: none
  std::string accelerate = {};  ///< settings of accelerate or of the HF Trainer
  std::vector<std::string> keys = {};  ///< KEY=VALUE; they win over the files
};

/// The same in values.
struct PlanQuestion {
  ModelShape model;
  Cluster cluster;
  PlanSettings settings;
  /// Names of the keys that were set: what proposes other settings leaves
  /// these as they are.
  std::vector<std::string> stated;
  /// What the reader should know: how a model was chosen, which keys of a
  /// launcher's file have no meaning here.
  std::vector<std::string> notes;
};

/// Throws std::invalid_argument that names the key, file or part that is wrong
///        and the nearest valid one; std::runtime_error for files that cannot
///        be read
PlanQuestion make_question(const PlanInput& input);

/// Sets one KEY=VALUE as a user does. Throws as set_key() does.
void state_key(const std::string& assignment, PlanQuestion& question);
[[nodiscard]] bool is_stated(std::string_view key,
                             const PlanQuestion& question);

/// A config.json, a folder that has one, or the usual name of a model.
ModelShape find_model(const std::string& model);
/// "16x8xH100-IB", or a .toml file.
Cluster find_cluster(const std::string& cluster);

/// The question with its mesh: axes that were left open take the GPUs that the
/// others leave, batch_tokens decides grad_accum, and products in fp32 gather
/// fp32 unless gather_bytes was stated.
///
/// Throws std::invalid_argument where the GPUs, or the tokens of a batch, do
///        not divide
PlanRequest resolved(const PlanQuestion& question);

}  // namespace accordion::plan
