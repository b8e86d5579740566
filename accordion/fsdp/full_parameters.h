// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

// Whole parameters outside of forward and backward. For a single one see
// full_parameter in fsdp/sharded_module.h.
namespace accordion {

/// Calls `visit` on rank 0 with each parameter of a sharded module in its
/// global shape and stored dtype, in a tensor of its own, so that a model is
/// written without anyone holding it:
///
///     accordion::full_parameters(net, [&](const auto& name, const auto& p) {
///       torch::save(p, folder + "/" + name + ".pt");
///     });
///
/// Parameters come unit by unit, shared ones once, under their first name;
/// ignored ones last. What `visit` throws is thrown on rank 0 once the other
/// ranks have what they wait for, without another call of it.
///
/// Comm    one all-gather of each section; called by every rank
/// Memory  one section on each rank, and one parameter on rank 0
/// Throws  c10::ValueError when `root` is not sharded
void full_parameters(
    const torch::nn::Module& root,
    const std::function<void(const std::string& name,
                             const torch::Tensor& parameter)>& visit);

template <class Contained, class Visit>
void full_parameters(const torch::nn::ModuleHolder<Contained>& root,
                     const Visit& visit) {
  full_parameters(static_cast<const torch::nn::Module&>(*root), visit);
}

struct SummonOptions {
  /// Takes over what was written, on leaving.
  bool writeback = true;
  /// Shows whole parameters on rank 0 only. With writeback, all ranks take
  /// over what rank 0 wrote.
  bool rank0_only = false;
  /// Shows whole gradients too; without, `.grad()` is undefined meanwhile.
  bool with_gradients = false;
};

/// While it lives, the parameters of the units in and below a module are whole,
/// in the stored dtype: to be looked at, or written under torch::NoGradGuard.
///
///     {
///       accordion::SummonFullParameters whole(net);
///       const torch::NoGradGuard no_grad;
///       torch::nn::init::zeros_(net->head->weight);  // on every rank
///     }
///
/// On leaving, by an exception too, parameters are pieces again. With writeback
/// each rank takes its range of what it holds, so every rank writes the same;
/// a tensor of the global shape that was assigned (set_data) counts as written.
/// Of gradients the values are taken over: one that was reset counts as zero,
/// one that was not there stays undefined.
///
/// Optimizers know pieces: do not step one meanwhile. A parameter tied across
/// units belongs to the unit around them, and ignored ones are whole anyway.
///
/// Requires  every rank makes the same guards, between passes
/// Comm      one all-gather of each section (two with gradients); on leaving
///           none, but with rank0_only and writeback one broadcast of each
/// Memory    a whole copy in the stored dtype (two with gradients) where it is
///           shown; one section at a time on other ranks
/// Throws    c10::ValueError: inside forward or backward; for units that a
///           guard shows already. Forward or backward of such units throws, too
/// Source    upstream FSDP.summon_full_params; DeepSpeed's GatheredParameters
class SummonFullParameters {
 public:
  explicit SummonFullParameters(torch::nn::Module& module,
                                const SummonOptions& options = {});
  template <class Contained>
  explicit SummonFullParameters(torch::nn::ModuleHolder<Contained>& module,
                                const SummonOptions& options = {})
      : SummonFullParameters(static_cast<torch::nn::Module&>(*module),
                             options) {}
  SummonFullParameters(const SummonFullParameters&) = delete;
  SummonFullParameters& operator=(const SummonFullParameters&) = delete;
  /// As close, but errors become warnings.
  ~SummonFullParameters();

  /// Ends it before the scope does.
  ///
  /// Throws c10::ValueError for a parameter or gradient that was replaced by a
  ///        tensor of another shape or dtype, which is dropped; CommError
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;  // null once closed
};

}  // namespace accordion
