// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/plan.h"

namespace accordion::plan {

/// The group of rows that a row's throughput is judged with.
enum class RowGroup : std::uint8_t {
  Foundry,        ///< llm-foundry: MPT under FSDP
  DataParallel,   ///< other software, 16 bits, no other parallelism
  EightBit,       ///< the same with 8-bit products
  ModelParallel,  ///< with tensor, pipeline or context ranks
  TrainingRun,    ///< tokens over GPU hours of a whole run
};
[[nodiscard]] std::string_view to_string(RowGroup group);

/// A row of published runs as a question to the planner.
struct PublishedRun {
  PlanRequest request;
  RowGroup group = RowGroup::DataParallel;
};

/// Reads a row (docs/planner_accuracy.md has the format).
///
/// What a row leaves open is taken from the software's documented defaults: the
/// types of llm-foundry's DEFAULT and PURE, microbatches of a pipeline,
/// Megatron's distributed optimizer, torchtune's recipes; and the network of
/// the GPU's usual machines.
///
/// Throws std::invalid_argument that says what keeps the row from being
///        modelled: no layout, no shape, adapters, a GPU that is not known
PublishedRun read_published_run(const nlohmann::json& row);

}  // namespace accordion::plan
