// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "accordion/module/init_rule.h"

// What the parameters of a module that was built under MetaInit start with.
namespace accordion {

/// Fills a parameter [global shape] as a whole, for values that depend on each
/// other (orthogonal matrices). Draws from `generator`, which depends on seed
/// and name alone, and from nothing else.
using WholeInit =
    std::function<void(const at::Tensor& whole, at::Generator generator)>;

using InitialValue = std::variant<InitRule, WholeInit>;

/// Implemented by a module that says how parameters below it start.
///
///     struct BlockImpl : torch::nn::Module, accordion::InitialValues {
///       std::optional<accordion::InitialValue> initial_value(
///           const std::string& name, const at::Tensor&) const override {
///         if (name == "scale") return accordion::InitRule::constant(1);
///         return std::nullopt;  // as the modules inside have it
///       }
///     };
class InitialValues {
 public:
  virtual ~InitialValues() = default;
  /// `name` is the parameter's, relative to this module ("attention.q.weight");
  /// `parameter` [global shape] has no values yet. nullopt: no opinion.
  [[nodiscard]] virtual std::optional<InitialValue> initial_value(
      const std::string& name, const at::Tensor& parameter) const = 0;
};

/// How a module without values gets them. See materialize.
struct InitOptions {
  /// With the parameter's name, the origin of every random value.
  std::uint64_t seed = 0;
  /// Asked first, by FQN; nullopt leaves the choice to the modules.
  std::function<std::optional<InitialValue>(const std::string& name,
                                            const at::Tensor& parameter)>
      initial_value = {};
  /// Fills a buffer of a module that cannot implement BuffersFromConfig, by
  /// FQN. Returns whether it did. See rebuild_buffers.
  std::function<bool(const std::string& name, const at::Tensor& buffer)>
      fill_buffer = {};
};

/// How one parameter gets its first values.
struct ParameterInit {
  std::string name;  ///< the first FQN under which it is registered
  at::Tensor parameter;
  InitialValue value;
  std::uint64_t key = 0;  ///< random_key(seed, name)
};

/// The parameters of `root` that are on meta, each once, in the order in which
/// they are registered. Parameters with values are not listed: loaded ones
/// keep what they have.
///
/// The first of these that has an opinion decides: options.initial_value; the
/// modules around the parameter, from root to owner, if they implement
/// InitialValues or are LibTorch's own (whose defaults are LibTorch's).
///
/// Throws c10::ValueError that names the parameters on which nobody has
std::vector<ParameterInit> plan_initialization(torch::nn::Module& root,
                                               const InitOptions& options);

/// Writes elements [begin, begin + piece.numel()) of a parameter, in row-major
/// order. Values are drawn in fp32 and rounded to the piece's dtype; they are
/// the same whatever the pieces.
///
/// Shapes  piece: contiguous, on the CPU
/// Memory  a WholeInit adds the whole parameter while it runs
void initialize_piece(const ParameterInit& init, std::int64_t begin,
                      const at::Tensor& piece);

}  // namespace accordion
