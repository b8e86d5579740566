// SPDX-License-Identifier: BSD-3-Clause
// What passes the edges of a unit: outputs that are views, that alias
// parameters, that the caller writes into, that are several.
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;

/// A unit whose forward is a function of its weight and input.
struct CellImpl : torch::nn::Module {
  using Output = std::tuple<torch::Tensor, std::vector<torch::Tensor>>;
  using Function = std::function<Output(torch::Tensor, torch::Tensor)>;
  explicit CellImpl(Function function) : function(std::move(function)) {
    weight = register_parameter(
        "weight", torch::linspace(-1, 1, 25).view({5, 5}).clone());
  }
  Output forward(torch::Tensor x) { return function(weight, x); }
  Function function;
  torch::Tensor weight;
};
TORCH_MODULE(Cell);

/// Two cells in a row; `between` is what the caller does to the outputs of the
/// first before it calls the second.
template <template <class> class Wrap>
struct ChainImpl : torch::nn::Module {
  using Between = std::function<torch::Tensor(const CellImpl::Output&)>;
  ChainImpl(CellImpl::Function function, Between between)
      : between(std::move(between)) {
    first = this->register_module("first", Wrap<Cell>(function));
    second = this->register_module("second", Wrap<Cell>(plain()));
  }
  static CellImpl::Function plain() {
    return [](torch::Tensor w, torch::Tensor x) {
      return CellImpl::Output{torch::tanh(x.matmul(w)), {}};
    };
  }
  torch::Tensor forward(torch::Tensor x) {
    return std::get<0>(second(between(first(x)))).sum();
  }
  Between between;
  Wrap<Cell> first{nullptr}, second{nullptr};
};
struct PlainChain : torch::nn::ModuleHolder<ChainImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitChain : torch::nn::ModuleHolder<ChainImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

torch::Tensor input() {
  return torch::arange(15, torch::kFloat).view({3, 5}) / 9;
}

/// Gradients of a chain on two ranks with the same data equal those of the
/// plain modules, in the first (recorded) and the third (replayed) step.
void expect_same_gradients(const CellImpl::Function& function,
                           const ChainImpl<Unit>::Between& between) {
  PlainChain plain(function, between);
  plain(input()).backward();
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Unit<UnitChain> net(function, between);
    fully_shard(net, mesh);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net(input()).backward();
      for (const auto& parameter : plain->named_parameters()) {
        const auto got = full_gradient(*net, parameter.key());
        EXPECT_TRUE(torch::allclose(got, parameter.value().grad(), 1e-5, 1e-6))
            << parameter.key() << ", step " << step;
      }
    }
  });
}

torch::Tensor first_of(const CellImpl::Output& output) {
  return std::get<0>(output);
}

TEST(UnitBoundary, OutputThatIsAView) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w).t().contiguous().t(), {}};
      },
      first_of);
}

TEST(UnitBoundary, ViewThatTheCallerWritesIntoInPlace) {
  // A hook on the view itself would be lost here, and with it the unshard.
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w).narrow(0, 0, 3), {}};
      },
      [](const CellImpl::Output& output) {
        auto y = std::get<0>(output);
        y.mul_(2);
        return y;
      });
}

TEST(UnitBoundary, OutputThatTheCallerWritesIntoInPlace) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w), {}};
      },
      [](const CellImpl::Output& output) {
        auto y = std::get<0>(output);
        y.mul_(2);
        y.select(0, 1).add_(1).mul_(y.select(0, 0).clone());
        return y;
      });
}

TEST(UnitBoundary, OutputThatIsOneOfSeveralResultsOfAnOperator) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{std::get<0>(x.matmul(w).sort(1)), {}};
      },
      first_of);
}

TEST(UnitBoundary, OutputThatIsTheInput) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x, {x.matmul(w)}};
      },
      [](const CellImpl::Output& output) {
        return std::get<0>(output) + std::get<1>(output)[0];
      });
}

TEST(UnitBoundary, OutputThatAliasesAParameter) {
  // The slot of the parameter is used by others before the loss reads it.
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w), {w.t(), w}};
      },
      [](const CellImpl::Output& output) {
        const auto& [y, weights] = output;
        return y + (weights[0] * weights[1]).sum(0);
      });
}

TEST(UnitBoundary, SeveralOutputsOfWhichSomeAreUnused) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        const auto y = x.matmul(w);
        return CellImpl::Output{y, {y.exp(), y.sin(), torch::ones({2})}};
      },
      [](const CellImpl::Output& output) {
        return std::get<1>(output)[1] + std::get<1>(output)[2].sum();
      });
}

TEST(UnitBoundary, SeveralOutputsThatHaveNothingInCommon) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w), {x.matmul(w.t()).tanh()}};
      },
      [](const CellImpl::Output& output) { return std::get<1>(output)[0]; });
}

TEST(UnitBoundary, ForwardThatWritesToItsInputInPlace) {
  // The caller's tensor is written to, exactly as without units.
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.mul_(3).matmul(w), {}};
      },
      [](const CellImpl::Output& output) {
        return std::get<0>(output).clone();
      });
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<UnitChain> net(
        [](torch::Tensor w, torch::Tensor x) {
          return CellImpl::Output{x.mul_(3).matmul(w), {}};
        },
        first_of);
    fully_shard(net, mesh);
    const auto x = input();
    net(x).backward();
    EXPECT_TRUE(torch::equal(x, input() * 3));
  });
}

TEST(UnitBoundary, InputThatIsUsedAgainAfterTheUnit) {
  expect_same_gradients(
      [](torch::Tensor w, torch::Tensor x) {
        return CellImpl::Output{x.matmul(w), {x.clone()}};
      },
      [](const CellImpl::Output& output) {
        return std::get<0>(output) + std::get<1>(output)[0];
      });
}

TEST(UnitBoundary, SavedTensorReadWhileReshardedIsAnErrorThatNamesTheUnit) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    torch::Tensor kept;
    Unit<UnitChain> net(
        [&kept](torch::Tensor w, torch::Tensor x) {
          kept = w.detach();
          return CellImpl::Output{x.matmul(w), {}};
        },
        first_of);
    fully_shard(net, mesh);
    net(input());
    const auto message =
        testing::message_of<c10::Error>([&] { kept.sum().item<float>(); });
    EXPECT_NE(message.find("unit 'first' were read while they were resharded"),
              std::string::npos)
        << message;
  });
}

}  // namespace
}  // namespace accordion
