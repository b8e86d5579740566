// SPDX-License-Identifier: BSD-3-Clause
// [Note: when a warning is right]
#include <algorithm>
#include <map>
#include <set>

#include <c10/util/StringUtil.h>

#include "accordion/fsdp/describe.h"

namespace accordion {

namespace {

constexpr std::size_t kMaxListed = 4;
/// What is worth a unit of its own: more than its gather's latency.
constexpr std::int64_t kWorthCutting = 2 * kLatencyBytes;

std::string quoted(const UnitDescription& unit) {
  return unit.name.empty() ? "the root" : "unit '" + unit.name + "'";
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return c10::str(100 * part / std::max<std::int64_t>(whole, 1), " %");
}

std::int64_t gathered_bytes(const ParameterDescription& parameter) {
  return parameter.numel() * element_bytes(parameter.gathered_dtype);
}

template <class Predicate>
std::int64_t numel_where(const UnitDescription& unit, Predicate&& counts) {
  std::int64_t sum = 0;
  for (const ParameterDescription& parameter : unit.parameters) {
    sum += counts(parameter) ? parameter.numel() : 0;
  }
  return sum;
}

/// "a.b" of "a.b.weight"; "" of a parameter of the root itself.
std::string module_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// Elements of a unit by the module that registers them.
std::map<std::string, std::int64_t> numel_by_module(
    const UnitDescription& unit) {
  std::map<std::string, std::int64_t> result;
  for (const ParameterDescription& parameter : unit.parameters) {
    result[module_of(parameter.names.front())] += parameter.numel();
  }
  return result;
}

/// Whether no module inside holds nearly all of it, so that units inside would
/// be smaller.
bool can_be_cut(const UnitDescription& unit) {
  std::int64_t largest = 0;
  for (const auto& [module, numel] : numel_by_module(unit)) {
    largest = std::max(largest, numel);
  }
  return unit.unsharded_bytes >= kWorthCutting &&
         5 * largest < 4 * unit.numel();
}

class Warnings {
 public:
  explicit Warnings(const ModuleDescription& description)
      : net_(description), total_(description.numel()) {}

  std::vector<std::string> run() {
    nothing_trains();
    if (net_.gather_ranks > 1) {
      one_unit();
      large_unit();
      large_root();
      frozen_root();
      small_units();
      mixed_sections();
      empty_ranks();
      replicated();
      tied_across_units();
    }
    return std::move(found_);
  }

 private:
  template <class... Parts>
  void add(const Parts&... parts) {
    found_.push_back(c10::str(parts...));
  }

  std::vector<const UnitDescription*> units_with_parameters() const {
    std::vector<const UnitDescription*> result;
    for (const UnitDescription& unit : net_.units) {
      if (!unit.parameters.empty()) {
        result.push_back(&unit);
      }
    }
    return result;
  }

  void nothing_trains() {
    const bool trains = std::any_of(
        net_.units.begin(), net_.units.end(), [](const UnitDescription& unit) {
          return numel_where(unit, [](const ParameterDescription& parameter) {
                   return parameter.requires_grad;
                 }) > 0;
        });
    if (!trains && total_ > 0) {
      add("every parameter is frozen (requires_grad is false): backward "
          "reduces no gradient and an optimizer changes nothing");
    }
  }

  void one_unit() {
    const auto units = units_with_parameters();
    if (units.size() == 1 && can_be_cut(*units.front())) {
      add(quoted(*units.front()),
          " holds every parameter: all are gathered at once, and no gather "
          "overlaps with computation. Declare the modules inside, such as "
          "blocks, as accordion::Unit",
          net_.dissolved.empty() ? "" : ", or let the wrap policy choose more");
    }
  }

  void large_unit() {
    for (const UnitDescription* unit : units_with_parameters()) {
      if (unit->parent >= 0 && 2 * unit->numel() > total_ &&
          unit->numel() < total_ && can_be_cut(*unit)) {
        add(quoted(*unit), " holds ", percent(unit->numel(), total_),
            " of all elements: buffers are as large as it, and little "
            "computation is left to gather it behind. Declare modules inside "
            "it as accordion::Unit");
      }
    }
  }

  /// Embedding and head are the root's in most models, and are needed at both
  /// ends of a pass; what else is in a module of its own need not be.
  void large_root() {
    for (const UnitDescription* unit : units_with_parameters()) {
      if (unit->parent >= 0 || unit->numel() == total_) {
        continue;
      }
      const std::int64_t rest =
          numel_where(*unit, [](const ParameterDescription& parameter) {
            return !parameter.per_token &&
                   !module_of(parameter.names.front()).empty();
          });
      if (4 * rest > total_ && rest * 4 >= kWorthCutting) {
        add(quoted(*unit), " holds ", percent(rest, total_),
            " of all elements besides embedding and head, and is whole "
            "while all others compute: ",
            largest_modules(*unit),
            ". Declare these modules as accordion::Unit");
      }
    }
  }

  static std::string largest_modules(const UnitDescription& unit) {
    std::set<std::string> per_token;
    for (const ParameterDescription& parameter : unit.parameters) {
      if (parameter.per_token) {
        per_token.insert(module_of(parameter.names.front()));
      }
    }
    std::vector<std::pair<std::int64_t, std::string>> modules;
    for (const auto& [module, numel] : numel_by_module(unit)) {
      if (!module.empty() && !per_token.contains(module)) {
        modules.emplace_back(-numel, module);
      }
    }
    std::sort(modules.begin(), modules.end());
    std::vector<std::string> names;
    for (const auto& [numel, module] : modules) {
      names.push_back("'" + module + "'");
    }
    return listed(names);
  }

  void frozen_root() {
    for (const UnitDescription* unit : units_with_parameters()) {
      const std::int64_t trainable = numel_where(
          *unit, [](const ParameterDescription& p) { return p.requires_grad; });
      if (unit->parent < 0 && trainable == 0 && unit->numel() < total_ &&
          4 * unit->numel() > total_ && !unit->reshard_after_forward &&
          net_.strategy == Strategy::FullShard) {
        add(quoted(*unit), " is frozen and holds ",
            percent(unit->numel(), total_),
            " of all elements, whole from forward to backward. "
            "set_reshard_after_forward(net, true) frees it in between, for one "
            "more gather");
      }
    }
  }

  /// The root is what is left over, and has to be some size.
  void small_units() {
    std::vector<std::string> names;
    for (const UnitDescription* unit : units_with_parameters()) {
      if (unit->parent >= 0 && unit->unsharded_bytes > 0 &&
          unit->unsharded_bytes < kLatencyBytes) {
        names.push_back("'" + unit->name + "'");
      }
    }
    if (!names.empty()) {
      add(names.size(), names.size() == 1 ? " unit gathers" : " units gather",
          " less than ", kLatencyBytes / 1024, " KiB: ", listed(names),
          ". Latency decides there, not bytes: merge them into the units "
          "around with FsdpOptions::wrap = wrap_min_numel(…)");
    }
  }

  void mixed_sections() {
    std::vector<std::string> dtypes, trainings;
    for (const UnitDescription& unit : net_.units) {
      std::set<DType> stored;
      std::set<bool> trainable;
      for (const Section& section : unit.sections) {
        if (section.placement == Placement::Shard) {
          stored.insert(section.stored_dtype);
          trainable.insert(section.requires_grad);
        }
      }
      if (stored.size() > 1) {
        dtypes.push_back(quoted(unit));
      }
      if (trainable.size() > 1) {
        trainings.push_back(quoted(unit));
      }
    }
    if (!dtypes.empty()) {
      add("stored dtypes mix within ", listed(dtypes),
          ": each is a section, cut, padded and stepped by itself. Make the "
          "module in one dtype and compute in another with "
          "FsdpOptions::precision, unless it is meant");
    }
    if (!trainings.empty()) {
      add("frozen and trainable parameters mix within ", listed(trainings),
          ": each kind is a section, cut and padded by itself. Expected of "
          "adapters; else freeze units as a whole");
    }
  }

  /// Of a cut section, ranks behind its last element.
  void empty_ranks() {
    std::vector<std::string> names;
    int most = 0;
    for (const UnitDescription& unit : net_.units) {
      for (const Section& section : unit.sections) {
        const int empty = ranks_without(section, unit);
        if (2 * empty > net_.gather_ranks) {
          most = std::max(most, empty);
          names.push_back(quoted(unit));
          break;
        }
      }
    }
    if (!names.empty()) {
      add("up to ", most, " of ", net_.gather_ranks,
          " ranks hold nothing of a section of ", listed(names),
          ", which has fewer than 64 bytes a rank: its gathers move padding. "
          "Replicate small parameters (FsdpOptions::min_shard_numel), or cut "
          "over fewer ranks on a mesh with an axis 'replicate'");
    }
  }

  int ranks_without(const Section& section, const UnitDescription& unit) const {
    if (section.placement != Placement::Shard || section.numel == 0) {
      return 0;
    }
    const std::int64_t end =
        section.offsets.back() +
        unit.parameters[static_cast<std::size_t>(section.parameters.back())]
            .numel();
    const std::int64_t ranks =
        (end + section.numel_per_rank - 1) / section.numel_per_rank;
    return net_.gather_ranks - static_cast<int>(ranks);
  }

  void replicated() {
    std::int64_t numel = 0;
    for (const UnitDescription& unit : net_.units) {
      numel += numel_where(unit, [](const ParameterDescription& parameter) {
        return parameter.placement == ParameterPlacement::Replicate;
      });
    }
    if (10 * numel > total_ && numel * 4 >= kWorthCutting) {
      add("replicated parameters are ", percent(numel, total_),
          " of all elements: every rank keeps them, their gradients and their "
          "optimizer state whole. Lower FsdpOptions::min_shard_numel, or let "
          "FsdpOptions::placement shard the large ones");
    }
  }

  void tied_across_units() {
    for (const UnitDescription& unit : net_.units) {
      for (const ParameterDescription& parameter : unit.parameters) {
        std::set<std::string> around;
        for (const std::string& name : parameter.names) {
          around.insert(innermost(name).name);
        }
        if (around.size() > 1 && gathered_bytes(parameter) >= kWorthCutting) {
          around.erase(unit.name);
          std::vector<std::string> names;
          for (const std::string& name : around) {
            names.push_back("'" + name + "'");
          }
          add("'", parameter.names.front(), "' is tied to '",
              parameter.names.back(), "' across units, so ", quoted(unit),
              " around both gathers it (", percent(parameter.numel(), total_),
              " of all elements), and not ", listed(names),
              ". As units of their own those save nothing for it");
        }
      }
    }
  }

  /// The unit in whose module a name is registered.
  const UnitDescription& innermost(const std::string& name) const {
    const auto found = std::find_if(net_.units.rbegin(), net_.units.rend(),
                                    [&name](const UnitDescription& unit) {
                                      return unit.name.empty() ||
                                             name.starts_with(unit.name + ".");
                                    });
    return found == net_.units.rend() ? net_.units.front() : *found;
  }

  static std::string listed(const std::vector<std::string>& names) {
    std::string result;
    for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
      result += (i == 0 ? "" : ", ") + names[i];
    }
    return result + (names.size() > kMaxListed ? ", …" : "");
  }

  const ModuleDescription& net_;
  std::int64_t total_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> warnings(const ModuleDescription& description) {
  return Warnings(description).run();
}

}  // namespace accordion
