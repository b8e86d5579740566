// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/full_parameters.h"

#include <exception>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/fsdp_state.h"
#include "accordion/fsdp/guarded_visitor.h"
#include "accordion/fsdp/sharded_module.h"

namespace accordion {

/// A unit whose parameters are shown.
struct Summoned {
  std::shared_ptr<FsdpState> state;
  std::shared_ptr<FsdpUnit> unit;
  std::vector<WholeSection> sections = {};  // empty where nothing is shown

  [[nodiscard]] bool on_first_rank() const { return state->mesh.rank() == 0; }
  [[nodiscard]] int num_sections() const {
    return static_cast<int>(unit->sections().size());
  }
};

namespace {

using detail::GuardedVisitor;

void visit_section(const FsdpUnit& unit, int section, bool is_first,
                   GuardedVisitor& visitor) {
  const at::Tensor flat = unit.gather_whole(section, false).parameters;
  if (!is_first) {
    return;
  }
  for (const int i :
       unit.sections()[static_cast<std::size_t>(section)].layout->parameters) {
    // Clones: saving a view would save the section.
    visitor(unit.parameters()[static_cast<std::size_t>(i)].name(),
            unit.whole_of(i, flat).clone());
  }
}

void visit_ignored(const torch::nn::Module& root, GuardedVisitor& visitor) {
  for (const auto& [name, tensor] : ignored_parameters(root)) {
    visitor(name, tensor.detach().clone());
  }
}

std::vector<Summoned> summoned_below(const torch::nn::Module& module) {
  std::vector<Summoned> result;
  for (const UnitRef& ref : units_below(module, "SummonFullParameters")) {
    const auto& units = ref.executor().units();
    result.push_back({.state = ref.state,
                      .unit = units[static_cast<std::size_t>(ref.unit)]});
  }
  return result;
}

void check_between_passes(const std::vector<Summoned>& units) {
  for (const Summoned& summoned : units) {
    TORCH_CHECK_VALUE(
        !summoned.state->executor->is_busy(),
        "[SummonFullParameters] made inside the forward or backward of the "
        "module with unit '",
        summoned.unit->name(),
        "', which decides when parameters are whole. Make it between passes.");
    TORCH_CHECK_VALUE(
        !summoned.unit->summoned(),
        "[SummonFullParameters] another guard shows the parameters of unit '",
        summoned.unit->name(),
        "'. Guards do not nest: end that one first, or make one for a module "
        "around all that is needed.");
  }
}

void broadcast(Communicator& world, const at::Tensor& flat,
               const std::string& label) {
  world.broadcast(flat.mutable_data_ptr(),
                  static_cast<std::int64_t>(flat.nbytes()), /*root=*/0, label);
}

}  // namespace

void full_parameters(const torch::nn::Module& root,
                     const GuardedVisitor::Visit& visit) {
  const FsdpState& state = sharded_state(root, "full_parameters");
  const at::NoGradGuard no_grad;
  const bool is_first = state.mesh.rank() == 0;
  GuardedVisitor visitor(visit);
  for (const auto& unit : state.executor->units()) {
    unit->adopt_assignments();
    for (int s = 0; s < static_cast<int>(unit->sections().size()); ++s) {
      visit_section(*unit, s, is_first, visitor);
    }
  }
  if (is_first) {
    visit_ignored(root, visitor);
  }
  visitor.rethrow();
}

struct SummonFullParameters::State {
  SummonOptions options;
  std::vector<Summoned> units;

  /// Takes over what was written; what cannot be is thrown once the other
  /// ranks have what they wait for.
  void write_back() {
    std::exception_ptr error;
    for (Summoned& summoned : units) {
      try {
        if (!summoned.sections.empty()) {
          summoned.unit->collect_whole();
        }
      } catch (...) {
        error = std::current_exception();
      }
      for (int s = 0; s < summoned.num_sections(); ++s) {
        summoned.unit->assign_whole(s, section_to_assign(summoned, s));
      }
    }
    if (error) {
      std::rethrow_exception(error);
    }
  }

  WholeSection section_to_assign(const Summoned& summoned, int section) const {
    WholeSection whole =
        summoned.sections.empty()
            ? summoned.unit->make_whole(section, options.with_gradients)
            : summoned.sections[static_cast<std::size_t>(section)];
    if (options.rank0_only) {
      Communicator& world = summoned.state->mesh.world();
      broadcast(world, whole.parameters, summoned.unit->name());
      if (whole.gradients.defined()) {
        broadcast(world, whole.gradients, summoned.unit->name());
      }
    }
    return whole;
  }
};

SummonFullParameters::SummonFullParameters(torch::nn::Module& module,
                                           const SummonOptions& options)
    : state_(std::make_unique<State>(State{options, summoned_below(module)})) {
  const at::NoGradGuard no_grad;
  check_between_passes(state_->units);
  for (Summoned& summoned : state_->units) {
    summoned.state->executor->settle();
    summoned.unit->adopt_assignments();
    const bool shows = !options.rank0_only || summoned.on_first_rank();
    for (int s = 0; s < summoned.num_sections(); ++s) {
      WholeSection whole =
          summoned.unit->gather_whole(s, options.with_gradients);
      if (shows) {
        summoned.sections.push_back(std::move(whole));
      }
    }
  }
  for (const Summoned& summoned : state_->units) {
    summoned.unit->begin_summon();
    if (!summoned.sections.empty()) {
      summoned.unit->show_whole(summoned.sections);
    }
  }
}

void SummonFullParameters::close() {
  if (!state_) {
    return;
  }
  const auto state = std::move(state_);
  std::exception_ptr error;
  if (state->options.writeback) {
    try {
      state->write_back();
    } catch (...) {
      error = std::current_exception();
    }
  }
  for (const Summoned& summoned : state->units) {
    summoned.unit->end_summon();
    summoned.state->executor->settle();  // a pass that failed meanwhile
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

SummonFullParameters::~SummonFullParameters() {
  try {
    close();
  } catch (const std::exception& error) {
    TORCH_WARN(error.what());
  }
}

}  // namespace accordion
