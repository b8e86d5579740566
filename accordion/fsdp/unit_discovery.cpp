// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/unit_discovery.h"

#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include "accordion/fsdp/buffers.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

constexpr int kNoUnit = -1;

/// Where a parameter was found: its first name and the lowest unit that
/// contains every module that registers it.
struct Found {
  std::string name;
  torch::Tensor tensor;
  int unit = kNoUnit;
  ParameterPlacement placement = ParameterPlacement::Shard;
  bool keeps_dtype = false;
  std::vector<torch::Tensor> aliases = {};  // other tensors on its memory
};

/// The bytes from a tensor's first element to its last. On meta there are no
/// addresses, and tensors can only share a storage object.
struct Extent {
  const void* storage = nullptr;  // null: begin and end are addresses
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Extent extent_of(const torch::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  Extent extent;
  if (tensor.is_meta()) {
    extent.storage = tensor.storage().unsafeGetStorageImpl();
    extent.begin = tensor.storage_offset() * item;
  } else {
    extent.begin = reinterpret_cast<std::intptr_t>(tensor.const_data_ptr());
  }
  extent.end = extent.begin + (last + 1) * item;
  return extent;
}

/// Whether both are the same elements in the same order.
bool same_elements(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

std::string join(const std::string& prefix, const std::string& key) {
  return prefix.empty() ? key : prefix + "." + key;
}

std::string describe_parameter(const Found& found) {
  return c10::str("'", found.name, "' ", found.tensor.sizes());
}

class Discovery {
 public:
  explicit Discovery(const PlacementRule& place) : place_(place) {}

  std::vector<UnitMembers> run(torch::nn::Module& root) {
    visit(root, "", kNoUnit);
    TORCH_CHECK_VALUE(
        !units_.empty(), "[fully_shard] '", root.name(),
        "' contains no accordion::Unit, so there is nothing to gather. Declare "
        "it as accordion::Unit<Holder>, and its blocks too.");
    std::erase_if(found_, [](const Found& found) {
      return found.placement == ParameterPlacement::Ignore;
    });
    check_owned(root);
    check_storages();
    for (const Found& found : found_) {
      units_[static_cast<std::size_t>(found.unit)].parameters.push_back(
          {.name = found.name,
           .tensor = found.tensor,
           .aliases = found.aliases,
           .placement = found.placement == ParameterPlacement::Replicate
                            ? Placement::Replicate
                            : Placement::Shard,
           .keeps_dtype = found.keeps_dtype});
    }
    return std::move(units_);
  }

 private:
  void visit(torch::nn::Module& module, const std::string& prefix, int unit) {
    if (auto* base = dynamic_cast<UnitBase*>(&module)) {
      if (!visited_units_.insert(base).second) {
        // The same unit registered again: the same parameters, other names.
      } else {
        TORCH_CHECK_VALUE(!base->hooks(), "[fully_shard] unit '", prefix,
                          "' is sharded already. Call fully_shard once, on the "
                          "outermost module.");
        units_.push_back({prefix, base, unit, {}});
        unit = static_cast<int>(units_.size()) - 1;
      }
    }
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (item.value().defined()) {
        add(join(prefix, item.key()), item.value(), unit,
            keeps_stored_dtype(module));
      }
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), join(prefix, child.key()), unit);
    }
  }

  void add(const std::string& name, const torch::Tensor& tensor, int unit,
           bool keeps_dtype) {
    const auto [entry, is_new] = index_.try_emplace(
        tensor.unsafeGetTensorImpl(), static_cast<int>(found_.size()));
    if (is_new && !tie(name, tensor, entry->second)) {
      const ParameterPlacement placement =
          place_({name, tensor.sizes(), tensor.requires_grad()});
      if (placement != ParameterPlacement::Ignore) {
        check_kind(name, tensor);
      }
      found_.push_back({name, tensor, unit, placement, keeps_dtype});
      return;
    }
    Found& found = found_[static_cast<std::size_t>(entry->second)];
    found.unit = lowest_common(found.unit, unit);
  }

  /// Makes a new tensor an alias of one that was found before, if it is the
  /// same elements; sets `index` to that one.
  bool tie(const std::string& name, const torch::Tensor& tensor, int& index) {
    if (tensor.numel() == 0 || !tensor.has_storage()) {
      return false;
    }
    const Extent extent = extent_of(tensor);
    const auto [entry, is_new] =
        by_memory_.try_emplace({extent.storage, extent.begin}, index);
    if (is_new) {
      return false;
    }
    Found& found = found_[static_cast<std::size_t>(entry->second)];
    if (!same_elements(found.tensor, tensor)) {
      return false;  // check_storages has more to say
    }
    TORCH_CHECK_VALUE(
        found.tensor.requires_grad() == tensor.requires_grad(),
        "[fully_shard] parameters ", describe_parameter(found), " and '", name,
        "' are tied, but only one of them requires grad. Freeze both or none.");
    found.aliases.push_back(tensor);
    index = entry->second;
    return true;
  }

  static void check_kind(const std::string& name, const torch::Tensor& tensor) {
    TORCH_CHECK_VALUE(!tensor.is_complex(), "[fully_shard] parameter '", name,
                      "' is complex. Store its real and imaginary part "
                      "(torch::view_as_real) as one real parameter.");
    TORCH_CHECK_VALUE(tensor.layout() == torch::kStrided,
                      "[fully_shard] parameter '", name, "' has layout ",
                      tensor.layout(), "; only strided ones can be sharded.");
  }

  /// The innermost unit that contains both; kNoUnit when there is none.
  int lowest_common(int a, int b) const {
    std::unordered_set<int> above;
    for (; a != kNoUnit; a = units_[static_cast<std::size_t>(a)].parent) {
      above.insert(a);
    }
    while (b != kNoUnit && !above.contains(b)) {
      b = units_[static_cast<std::size_t>(b)].parent;
    }
    return b;
  }

  void check_owned(const torch::nn::Module& root) const {
    std::string orphans;
    int count = 0;
    for (const Found& found : found_) {
      if (found.unit == kNoUnit && ++count <= kMaxListed) {
        orphans += (orphans.empty() ? "" : ", ") + describe_parameter(found);
      }
    }
    TORCH_CHECK_VALUE(count == 0, "[fully_shard] ", count, " parameter",
                      count == 1 ? "" : "s", " belong to no unit: ", orphans,
                      count > kMaxListed ? ", …" : "",
                      ". Declare the root as accordion::Unit<…> instead of ",
                      root.name(),
                      ", or give these modules units of their own.");
  }

  /// Parameters that share some elements would be cut in two ways.
  void check_storages() const {
    std::map<std::pair<const void*, std::int64_t>, const Found*> by_end;
    for (const Found& found : found_) {
      if (found.tensor.numel() == 0) {
        continue;
      }
      const Extent extent = extent_of(found.tensor);
      // The first that ends behind where this one begins.
      const auto next = by_end.upper_bound({extent.storage, extent.begin});
      const bool overlaps = next != by_end.end() &&
                            next->first.first == extent.storage &&
                            extent_of(next->second->tensor).begin < extent.end;
      TORCH_CHECK_VALUE(!overlaps, "[fully_shard] parameters ",
                        describe_parameter(*next->second), " and ",
                        describe_parameter(found),
                        " are different tensors in the same memory. To tie "
                        "them, give both the same shape, or register one "
                        "tensor in both modules (head->weight = "
                        "register_parameter(\"weight\", "
                        "embed->weight)); else clone one of them.");
      by_end.emplace(std::pair(extent.storage, extent.end), &found);
    }
  }

  static constexpr int kMaxListed = 4;
  const PlacementRule& place_;
  std::vector<UnitMembers> units_;
  std::vector<Found> found_;
  std::unordered_map<const c10::TensorImpl*, int> index_;
  std::map<std::pair<const void*, std::int64_t>, int> by_memory_;
  std::unordered_set<const UnitBase*> visited_units_;
};

}  // namespace

const torch::nn::Module& module_of(const UnitMembers& unit) {
  return dynamic_cast<const torch::nn::Module&>(*unit.unit);
}

std::int64_t numel_of(const UnitMembers& unit) {
  std::int64_t numel = 0;
  for (const MemberParameter& parameter : unit.parameters) {
    numel += parameter.tensor.numel();
  }
  return numel;
}

PlacementRule placement_rule(const FsdpOptions& options) {
  if (options.placement) {
    return options.placement;
  }
  return [least = options.min_shard_numel](const ParameterInfo& parameter) {
    return c10::multiply_integers(parameter.shape) < least
               ? ParameterPlacement::Replicate
               : ParameterPlacement::Shard;
  };
}

std::vector<UnitMembers> discover_units(torch::nn::Module& root,
                                        const PlacementRule& place) {
  return Discovery(place).run(root);
}

UnitLayout layout_of(const UnitMembers& unit, const MixedPrecision& precision,
                     int num_ranks) {
  std::vector<ParameterSpec> specs;
  for (const MemberParameter& member : unit.parameters) {
    const DType stored = to_dtype(member.tensor.scalar_type());
    const bool cast = precision.param_dtype && !member.keeps_dtype &&
                      member.tensor.is_floating_point();
    specs.push_back({
        .name = member.name,
        .shape = member.tensor.sizes().vec(),
        .stored_dtype = stored,
        .gathered_dtype = cast ? to_dtype(*precision.param_dtype) : stored,
        .requires_grad = member.tensor.requires_grad(),
        .placement = member.placement,
    });
  }
  return UnitLayout::make(std::move(specs), num_ranks);
}

/// All of a unit or nothing: it has one slot, or none. Neighbours that keep a
/// copy of their own have no memory in common, and offloaded shards are none
/// that could be read where they are.
bool gathers_in_place(const UnitLayout& layout, const FsdpOptions& options) {
  const int ranks = layout.world_size();
  const int neighbours = options.reshard_to_ranks;
  const bool copies_to_neighbours = neighbours > 1 && neighbours < ranks;
  const bool offloads = options.offload && options.offload->parameters;
  if (!options.gather_in_place || ranks == 1 || copies_to_neighbours ||
      offloads) {
    return false;
  }
  bool any = false;
  for (const Section& section : layout.sections()) {
    if (section.placement == Placement::Shard) {
      any = true;
      if (section.stored_dtype != section.gathered_dtype &&
          !options.copies_in_place) {
        return false;
      }
    }
  }
  return any;
}

}  // namespace accordion
