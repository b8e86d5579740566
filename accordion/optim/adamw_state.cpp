// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <c10/util/Exception.h>

#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

namespace {

const std::vector<std::string> kFields = {"exp_avg", "exp_avg_sq"};

class AdamWState final : public OptimizerStateAccess {
 public:
  explicit AdamWState(AdamW& optimizer) : optimizer_(optimizer) {}

  [[nodiscard]] std::string type() const override { return "accordion::AdamW"; }

  [[nodiscard]] bool steps(const LocalParameter& parameter) override {
    return optimizer_.moments(parameter.name).has_value();
  }

  std::optional<ParameterState> find(const LocalParameter& parameter) override {
    const auto moments = optimizer_.moments(parameter.name);
    if (!moments || moments->steps == 0) {
      return std::nullopt;
    }
    return state_of(*moments);
  }

  [[nodiscard]] std::vector<std::string> fields(
      const LocalParameter& /*parameter*/) override {
    return kFields;
  }

  ParameterState make(const LocalParameter& parameter) override {
    return state_of(optimizer_.moments(parameter.name).value());
  }

  void reset(const LocalParameter& parameter) override {
    const auto moments = optimizer_.moments(parameter.name);
    moments->first.zero_();
    moments->second.zero_();
    optimizer_.set_steps({{parameter.name, 0}});
  }

  void set_counts(
      const std::map<std::string, std::map<std::string, std::int64_t>>& counts)
      override {
    std::map<std::string, std::int64_t> steps;
    for (const auto& [name, of_parameter] : counts) {
      const auto step = of_parameter.find("step");
      TORCH_CHECK_VALUE(step != of_parameter.end(),
                        "[load_checkpoint] the checkpoint has moments of "
                        "parameter '",
                        name, "' but not the number of steps they have seen");
      steps.emplace(name, step->second);
    }
    optimizer_.set_steps(steps);
  }

 private:
  static ParameterState state_of(const AdamW::Moments& moments) {
    return {
        .tensors = {{kFields[0], moments.first}, {kFields[1], moments.second}},
        .counts = {{"step", moments.steps}}};
  }

  AdamW& optimizer_;
};

}  // namespace

std::unique_ptr<OptimizerStateAccess> OptimizerStateTraits<AdamW>::access(
    AdamW& optimizer, torch::nn::Module& root) {
  TORCH_CHECK_VALUE(&optimizer.root() == &root,
                    "[checkpoint] the AdamW was made for another module");
  return std::make_unique<AdamWState>(optimizer);
}

}  // namespace accordion
