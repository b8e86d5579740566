// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/inspect.h"

namespace accordion {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const TensorStatistics& found) {
  Json json = {{"finite", found.finite},
               {"nan", found.nan},
               {"infinite", found.infinite}};
  const auto figure = [&](const char* name, double value) {
    json[name] = found.finite == 0 ? Json() : Json(value);
  };
  figure("min", found.min);
  figure("max", found.max);
  figure("mean", found.mean);
  figure("rms", found.rms);
  return json;
}

Json json_of(const TensorReport& tensor, bool with_statistics) {
  Json pieces = Json::array();
  for (const TensorPiece& piece : tensor.pieces) {
    pieces.push_back({{"rank", or_null(piece.rank)},
                      {"file", piece.file},
                      {"begin", piece.begin},
                      {"end", piece.end},
                      {"offset", piece.offset}});
  }
  Json json = {{"name", tensor.info.name},   {"dtype", tensor.info.dtype},
               {"shape", tensor.info.shape}, {"elements", tensor.info.numel},
               {"bytes", tensor.info.bytes}, {"aliases", tensor.aliases},
               {"pieces", std::move(pieces)}};
  if (with_statistics) {
    json["statistics"] =
        tensor.statistics ? json_of(*tensor.statistics) : Json();
  }
  return json;
}

Json values_of(const InspectReport& report) {
  Json values = Json::object();
  for (const auto& [name, value] : report.values) {
    values[name] =
        std::visit([](const auto& content) { return Json(content); }, value);
  }
  return values;
}

Json files_of(const InspectReport& report) {
  Json files = Json::array();
  for (const FileReport& file : report.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"rank", or_null(file.rank)}});
  }
  return files;
}

Json totals_of(const InspectReport& report) {
  Json totals = Json::object();
  for (const auto& [kind, total] : report.totals) {
    totals[kind] = {{"tensors", total.tensors},
                    {"elements", total.numel},
                    {"bytes", total.bytes}};
  }
  return totals;
}

}  // namespace

std::string to_json(const InspectReport& report) {
  Json json = {{"path", report.path},
               {"kind", report.is_checkpoint ? "checkpoint" : "weights"},
               {"newest_of", report.newest_of},
               {"step", or_null(report.step)}};
  if (report.is_checkpoint) {
    json["world_size"] = report.world_size;
  }
  json["values"] = values_of(report);
  json["files"] = files_of(report);
  json["verified"] = nullptr;
  if (report.verified) {
    json["verified"] = {{"bytes", report.verified->bytes},
                        {"seconds", report.verified->seconds}};
  }
  json["totals"] = totals_of(report);
  json["tensors"] = Json::array();
  for (const TensorReport& tensor : report.tensors) {
    json["tensors"].push_back(json_of(tensor, report.with_statistics));
  }
  // A folder's name may be no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace accordion
