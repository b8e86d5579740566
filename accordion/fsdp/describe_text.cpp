// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "accordion/fsdp/describe.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

std::string bytes_text(std::int64_t bytes) {
  constexpr std::int64_t kUnit = 1024;
  const auto value = static_cast<double>(bytes);
  if (bytes < kUnit) {
    return fmt::format("{} B", bytes);
  }
  if (bytes < kUnit * kUnit) {
    return fmt::format("{:.1f} KiB", value / kUnit);
  }
  if (bytes < kUnit * kUnit * kUnit) {
    return fmt::format("{:.1f} MiB", value / (kUnit * kUnit));
  }
  return fmt::format("{:.2f} GiB", value / (kUnit * kUnit * kUnit));
}

std::string_view strategy_text(Strategy strategy) {
  switch (strategy) {
    case Strategy::FullShard:
      return "full_shard";
    case Strategy::ShardGradOp:
      return "shard_grad_op";
    case Strategy::ShardOptimizer:
      return "shard_optimizer";
    case Strategy::NoShard:
      return "no_shard";
  }
  return "";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return c10::str(c10::IntArrayRef(shape));
}

/// "fp32", or "fp32 as bf16" where it is gathered in another dtype.
std::string dtype_text(DType stored, DType gathered) {
  return stored == gathered
             ? std::string(name(stored))
             : fmt::format("{} as {}", name(stored), name(gathered));
}

/// Rows of dim 0 where the piece consists of rows, else elements.
std::string piece_text(const ParameterDescription& parameter) {
  const Piece& piece = parameter.piece;
  if (piece.numel() == 0) {
    return "none";
  }
  if (piece.numel() == parameter.numel()) {
    return "all";
  }
  const std::int64_t row = parameter.numel() / parameter.shape[0];
  if (piece.begin % row == 0 && piece.end % row == 0) {
    return fmt::format("rows {}-{}", piece.begin / row, piece.end / row - 1);
  }
  return fmt::format("elements {}-{}", piece.begin, piece.end - 1);
}

void write_head(std::string& text, const ModuleDescription& net) {
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} over", strategy_text(net.strategy));
  for (const MeshAxis& axis : net.axes) {
    fmt::format_to(out, " {} {}", axis.name, axis.size);
  }
  fmt::format_to(out, ", as rank {} holds it\n", net.rank);
  const auto precision = [&](std::string_view what,
                             const std::optional<c10::ScalarType>& dtype) {
    if (dtype) {
      fmt::format_to(out, ", {} {}", what, c10::toString(*dtype));
    }
  };
  fmt::format_to(out, "prefetch {}", net.prefetch);
  if (net.prefetch_bytes > 0) {
    fmt::format_to(out, " up to {}", bytes_text(net.prefetch_bytes));
  }
  if (net.step_in_backward) {
    text += ", steps in backward";
  }
  for (const std::string& what : net.offloaded) {
    fmt::format_to(out, ", {} offloaded", what);
  }
  precision("parameters", net.precision.param_dtype);
  precision("reduction", net.precision.reduce_dtype);
  precision("outputs", net.precision.output_dtype);
  precision("buffers", net.precision.buffer_dtype);
  text += "\n";
}

void write_parameter(std::string& text, const ParameterDescription& parameter) {
  fmt::format_to(std::back_inserter(text), "    {:<32} {:<18} {:<22} {:>10}\n",
                 parameter.names.front(), shape_text(parameter.shape),
                 piece_text(parameter), bytes_text(parameter.bytes));
  for (std::size_t i = 1; i < parameter.names.size(); ++i) {
    text += "      tied to it: " + parameter.names[i] + "\n";
  }
}

void write_unit(std::string& text, const UnitDescription& unit) {
  fmt::format_to(
      std::back_inserter(text),
      "\nunit {}: {} elements, shard {}, gathered {}{}, gradients {}{}{}\n",
      unit.name.empty() ? "(root)" : unit.name, unit.numel(),
      bytes_text(unit.shard_bytes), bytes_text(unit.unsharded_bytes),
      unit.gathers_in_place ? " in place" : "", bytes_text(unit.gradient_bytes),
      unit.reshard_after_forward ? "" : ", kept from forward to backward",
      unit.checkpoints_activations ? ", activations recomputed" : "");
  for (const Section& section : unit.sections) {
    fmt::format_to(
        std::back_inserter(text),
        "  section {}, {}, {}: {} elements, {} a rank, padding {}\n",
        dtype_text(section.stored_dtype, section.gathered_dtype),
        section.requires_grad ? "trainable" : "frozen",
        section.placement == Placement::Shard ? "sharded" : "replicated",
        section.numel, section.numel_per_rank,
        section.padded_numel - section.numel);
    for (const int index : section.parameters) {
      write_parameter(text, unit.parameters[static_cast<std::size_t>(index)]);
    }
  }
}

void write_rest(std::string& text, const ModuleDescription& net) {
  const auto out = std::back_inserter(text);
  for (const ParameterDescription& parameter : net.ignored) {
    fmt::format_to(out, "\nignored {} {}, {}", parameter.names.front(),
                   shape_text(parameter.shape), bytes_text(parameter.bytes));
  }
  for (const WrapDecision& decision : net.dissolved) {
    fmt::format_to(out, "\ndissolved {}, {} elements ({})", decision.name,
                   decision.numel, decision.why);
  }
  fmt::format_to(
      out,
      "\ntotal of this rank: parameters {}, gradients {}, whole copies {}, "
      "slots for parameters {} and for gradients {}\n",
      bytes_text(net.bytes.parameters), bytes_text(net.bytes.gradients),
      bytes_text(net.bytes.whole_copies), bytes_text(net.bytes.parameter_slots),
      bytes_text(net.bytes.gradient_slots));
}

}  // namespace

std::string to_text(const ModuleDescription& description) {
  std::string text;
  write_head(text, description);
  for (const UnitDescription& unit : description.units) {
    write_unit(text, unit);
  }
  write_rest(text, description);
  for (const std::string& warning : warnings(description)) {
    text += "warning: " + warning + ".\n";
  }
  return text;
}

}  // namespace accordion
