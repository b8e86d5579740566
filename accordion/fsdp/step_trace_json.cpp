// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/step_trace_json.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace accordion {
namespace {

/// The lines of the picture, by what they show.
enum class Line { Units, Actions, Gathers, Reductions, AllReductions };

constexpr std::array<std::string_view, 5> kLineNames = {
    "units", "actions", "gathers in flight", "reductions in flight",
    "all-reductions in flight"};

bool begins_flight(SpanKind kind) {
  return kind == SpanKind::StartGather || kind == SpanKind::StartReduce ||
         kind == SpanKind::StartAllReduce;
}

/// Bytes of the full tensor of the collective that begins with such a span.
std::int64_t bytes_of(SpanKind kind, const ScheduledUnit& unit) {
  switch (kind) {
    case SpanKind::StartGather:
      return unit.unsharded_bytes;
    case SpanKind::StartReduce:
      return unit.gradient_bytes;
    default:
      return unit.all_reduce_bytes;
  }
}

/// The line on which the collective flies that this span awaits.
std::optional<Line> ends_flight(SpanKind kind) {
  switch (kind) {
    case SpanKind::AwaitGather:
      return Line::Gathers;
    case SpanKind::AwaitReduce:
      return Line::Reductions;
    case SpanKind::AwaitAllReduce:
      return Line::AllReductions;
    default:
      return std::nullopt;
  }
}

SpanKind start_of(SpanKind await) {
  static_assert(static_cast<int>(SpanKind::AwaitGather) ==
                static_cast<int>(SpanKind::StartGather) + 1);
  return static_cast<SpanKind>(static_cast<int>(await) - 1);
}

class TraceJson {
 public:
  TraceJson(const StepTrace& trace, std::span<const ScheduledUnit> units,
            int rank)
      : trace_(trace), units_(units), rank_(rank) {}

  std::string write(const TraceExtras& extras) {
    name_lines();
    for (const TransferSpan& transfer : extras.transfers) {
      add(transfer);
    }
    for (const Span& span : trace_.spans()) {
      if (span.end_ns != Span::kOpen) {
        add(span);
      }
    }
    for (const MemoryMoment& moment : extras.memory) {
      add(moment);
    }
    return nlohmann::json{{"traceEvents", std::move(events_)},
                          {"displayTimeUnit", "ms"},
                          {"otherData", {{"begin_ns", trace_.begin_ns()}}}}
        .dump();
  }

 private:
  void name_lines() {
    for (std::size_t line = 0; line < kLineNames.size(); ++line) {
      events_.push_back({{"name", "thread_name"},
                         {"ph", "M"},
                         {"pid", rank_},
                         {"tid", line},
                         {"args", {{"name", kLineNames[line]}}}});
    }
  }

  void add(const Span& span) {
    const bool of_unit =
        span.kind == SpanKind::Forward || span.kind == SpanKind::Backward;
    event(of_unit ? Line::Units : Line::Actions, span, span.begin_ns);
    if (begins_flight(span.kind)) {
      events_.back()["args"] = {{"bytes", bytes_of(span.kind, unit_of(span))}};
      flying_[{span.kind, span.unit}] = span.begin_ns;
    } else if (const auto line = ends_flight(span.kind)) {
      const auto start = flying_.find({start_of(span.kind), span.unit});
      if (start != flying_.end()) {
        event(*line, span, start->second);
        flying_.erase(start);
      }
    }
  }

  /// Several are in flight at a time: events with an identity, not on a line.
  void add(const TransferSpan& transfer) {
    const char* const name =
        transfer.is_write ? "offload write" : "offload read";
    const int id = num_transfers_++;
    for (const char* phase : {"b", "e"}) {
      const std::int64_t ns =
          *phase == 'b' ? transfer.begin_ns : transfer.end_ns;
      events_.push_back({{"name", name},
                         {"cat", "offload"},
                         {"ph", phase},
                         {"id", id},
                         {"pid", rank_},
                         {"tid", 0},
                         {"ts", microseconds(ns - trace_.begin_ns())},
                         {"args", {{"bytes", transfer.bytes}}}});
    }
  }

  void add(const MemoryMoment& moment) {
    events_.push_back(
        {{"name", "memory (MiB)"},
         {"ph", "C"},
         {"pid", rank_},
         {"ts", microseconds(moment.ns - trace_.begin_ns())},
         {"args",
          {{"unsharded parameters", mebibytes(moment.unsharded_parameters)},
           {"whole gradients", mebibytes(moment.whole_gradients)},
           {"activations", mebibytes(moment.activations)},
           {"other tensors", mebibytes(moment.other)}}}});
  }

  void event(Line line, const Span& span, std::int64_t begin_ns) {
    events_.push_back({{"name", label(line, span)},
                       {"cat", to_string(span.kind)},
                       {"ph", "X"},
                       {"pid", rank_},
                       {"tid", static_cast<int>(line)},
                       {"ts", microseconds(begin_ns - trace_.begin_ns())},
                       {"dur", microseconds(span.end_ns - begin_ns)}});
  }

  /// A line of one kind need not repeat it.
  [[nodiscard]] std::string label(Line line, const Span& span) const {
    const bool bare = line != Line::Units && line != Line::Actions;
    std::string result = bare ? "" : std::string(to_string(span.kind));
    if (span.unit >= 0) {
      const std::string& name = unit_of(span).name;
      result += (bare ? "" : " ") + (name.empty() ? "(root)" : name);
    }
    return result;
  }

  [[nodiscard]] const ScheduledUnit& unit_of(const Span& span) const {
    return units_[static_cast<std::size_t>(span.unit)];
  }

  static double microseconds(std::int64_t ns) {
    return static_cast<double>(ns) / 1e3;
  }
  static double mebibytes(std::int64_t bytes) {
    return static_cast<double>(bytes) / (1 << 20);
  }

  const StepTrace& trace_;
  std::span<const ScheduledUnit> units_;
  int rank_;
  std::map<std::pair<SpanKind, int>, std::int64_t> flying_;
  int num_transfers_ = 0;
  nlohmann::json events_ = nlohmann::json::array();
};

}  // namespace

std::string to_trace_json(const StepTrace& trace,
                          std::span<const ScheduledUnit> units, int rank,
                          const TraceExtras& extras) {
  return TraceJson(trace, units, rank).write(extras);
}

}  // namespace accordion
