// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/init_plan.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "accordion/module/stock_init.h"

namespace accordion {

namespace {

constexpr int kMaxUnknownListed = 4;
/// Elements that one task draws, and that are converted at a time.
constexpr std::int64_t kChunkNumel = 1 << 16;
/// On the CPU even while a MetaInit lives.
const at::TensorOptions kDrawn = at::device(at::kCPU).dtype(at::kFloat);

/// A module on the way from the root to a parameter's owner.
struct Ancestor {
  const torch::nn::Module* module;
  std::size_t prefix_length;  // of the FQN, the dot after it included
};

std::optional<InitialValue> opinion_of(const torch::nn::Module& module,
                                       const std::string& name,
                                       const at::Tensor& parameter) {
  if (const auto* user = dynamic_cast<const InitialValues*>(&module)) {
    if (auto value = user->initial_value(name, parameter)) {
      return value;
    }
  }
  return stock_initial_value(module, name, parameter);
}

class Planner {
 public:
  explicit Planner(const InitOptions& options) : options_(options) {}

  std::vector<ParameterInit> run(const torch::nn::Module& root) {
    visit(root, "");
    TORCH_CHECK_VALUE(
        num_unknown_ == 0, "[materialize] nobody says how ", num_unknown_,
        " parameter", num_unknown_ == 1 ? " starts: " : "s start: ", unknown_,
        num_unknown_ > kMaxUnknownListed ? ", …" : "",
        ". Implement accordion::InitialValues in a module around, set "
        "InitOptions::initial_value, or load values before.");
    return std::move(plan_);
  }

 private:
  void visit(const torch::nn::Module& module, const std::string& prefix) {
    path_.push_back({&module, prefix.size()});
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      const at::Tensor& parameter = item.value();
      if (parameter.defined() && parameter.is_meta() &&
          seen_.insert(parameter.unsafeGetTensorImpl()).second) {
        add(prefix + item.key(), parameter);
      }
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), prefix + child.key() + ".");
    }
    path_.pop_back();
  }

  void add(const std::string& name, const at::Tensor& parameter) {
    std::optional<InitialValue> value = decide(name, parameter);
    if (value) {
      plan_.push_back({name, parameter, std::move(*value),
                       random_key(options_.seed, name)});
    } else if (++num_unknown_ <= kMaxUnknownListed) {
      unknown_ +=
          c10::str(unknown_.empty() ? "" : ", ", "'", name, "' ",
                   parameter.sizes(), " of ", path_.back().module->name());
    }
  }

  [[nodiscard]] std::optional<InitialValue> decide(
      const std::string& name, const at::Tensor& parameter) const {
    if (options_.initial_value) {
      if (auto value = options_.initial_value(name, parameter)) {
        return value;
      }
    }
    for (const Ancestor& ancestor : path_) {
      if (auto value =
              opinion_of(*ancestor.module, name.substr(ancestor.prefix_length),
                         parameter)) {
        return value;
      }
    }
    return std::nullopt;
  }

  const InitOptions& options_;
  std::vector<Ancestor> path_;
  std::vector<ParameterInit> plan_;
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::string unknown_;
  int num_unknown_ = 0;
};

/// Values of a rule into [numel] of any dtype.
void fill_flat(const InitRule& rule, std::uint64_t key, std::int64_t begin,
               const at::Tensor& flat) {
  const bool in_place = flat.scalar_type() == at::kFloat;
  at::parallel_for(
      0, flat.numel(), kChunkNumel, [&](std::int64_t start, std::int64_t stop) {
        const at::NoGradGuard no_grad;
        for (std::int64_t i = start; i < stop; i += kChunkNumel) {
          const std::int64_t numel = std::min(kChunkNumel, stop - i);
          const at::Tensor part = flat.narrow(0, i, numel);
          const at::Tensor drawn = in_place ? part : at::empty({numel}, kDrawn);
          fill(rule, key, begin + i,
               {drawn.mutable_data_ptr<float>(),
                static_cast<std::size_t>(numel)});
          if (!in_place) {
            part.copy_(drawn);
          }
        }
      });
}

at::Tensor made_whole(const WholeInit& make, const ParameterInit& init,
                      at::ScalarType dtype) {
  const at::Tensor whole =
      at::empty(init.parameter.sizes(), kDrawn.dtype(dtype));
  make(whole, at::make_generator<at::CPUGeneratorImpl>(init.key));
  return whole;
}

}  // namespace

std::vector<ParameterInit> plan_initialization(torch::nn::Module& root,
                                               const InitOptions& options) {
  return Planner(options).run(root);
}

void initialize_piece(const ParameterInit& init, std::int64_t begin,
                      const at::Tensor& piece) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = piece.detach().view({-1});
  if (const auto* rule = std::get_if<InitRule>(&init.value)) {
    fill_flat(*rule, init.key, begin, flat);
    return;
  }
  const at::Tensor whole =
      made_whole(std::get<WholeInit>(init.value), init, piece.scalar_type());
  flat.copy_(whole.view({-1}).narrow(0, begin, flat.numel()));
}

}  // namespace accordion
