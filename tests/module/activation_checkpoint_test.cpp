// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/activation_checkpoint.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "accordion/module/unit.h"
#include "tests/module/recording_hooks.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what();
  }
  return "no error";
}

/// Runs a program with checkpoint and without; `wrap` makes either of a
/// function of one tensor. Gradients of x and w are equal, bit for bit.
using Function = std::function<Tensor(const Tensor&)>;
using Wrap = std::function<Tensor(const Function&, const Tensor&)>;
void expect_same_gradients(
    const std::function<Tensor(const Wrap&, Tensor x, Tensor w)>& program) {
  const auto gradients = [&](const Wrap& wrap) {
    torch::manual_seed(3);
    const Tensor x = torch::randn({4, 5}, torch::requires_grad());
    const Tensor w = torch::randn({5, 5}, torch::requires_grad());
    program(wrap, x, w).sum().backward();
    const Tensor next = torch::randn({2});
    return std::vector<Tensor>{x.grad(), w.grad(), next};
  };
  const auto plain =
      gradients([](const Function& f, const Tensor& x) { return f(x); });
  const auto checkpointed = gradients(
      [](const Function& f, const Tensor& x) { return checkpoint(f, x); });
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), checkpointed[i].defined()) << i;
    EXPECT_TRUE(!plain[i].defined() || torch::equal(plain[i], checkpointed[i]))
        << i;
  }
}

TEST(Checkpoint, GradientsOfArgumentsAndOfWhatIsCaptured) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    return wrap([w](const Tensor& x) { return torch::tanh(x.mm(w)).mm(w); }, x);
  });
}

TEST(Checkpoint, ArgumentsThatRequireNoGrad) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    const Tensor loss =
        wrap([w](const Tensor& x) { return torch::tanh(x.mm(w)); }, x.detach());
    return loss + 0 * x.sum();
  });
}

TEST(Checkpoint, RandomNumbersAreTheSameAndGoOn) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    const auto drop = [w](const Tensor& x) {
      return torch::dropout(x.mm(w), 0.5, true);
    };
    const Tensor y = wrap(drop, x);
    return wrap(drop, y) * torch::rand({});
  });
}

TEST(Checkpoint, Nested) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    const auto inner = [w](const Tensor& x) { return torch::tanh(x.mm(w)); };
    return wrap(
        [&wrap, inner](const Tensor& x) {
          return wrap(inner, wrap(inner, x)) + wrap(inner, x.sin());
        },
        x);
  });
}

TEST(Checkpoint, TheArgumentItselfAsResult) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    return wrap([](const Tensor& x) { return x; }, x.mm(w)) * 3;
  });
}

TEST(Checkpoint, WritingToTheResultInPlace) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    Tensor y = wrap([w](const Tensor& x) { return x.mm(w).sin(); }, x);
    return y.mul_(2).exp();
  });
}

TEST(Checkpoint, AutocastIsAsItWas) {
  expect_same_gradients([](const Wrap& wrap, Tensor x, Tensor w) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    Tensor y = wrap([w](const Tensor& x) { return x.mm(w); }, x);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    return y;
  });
}

TEST(Checkpoint, SeveralArgumentsAndResultsOfEveryKind) {
  const auto run = [](bool with_checkpoint) {
    torch::manual_seed(3);
    const Tensor a = torch::randn({3}, torch::requires_grad());
    const std::vector<Tensor> list = {torch::randn({3}, torch::requires_grad()),
                                      torch::randn({3})};
    const auto function = [](const Tensor& a, const std::vector<Tensor>& list,
                             const Tensor& none, double factor) {
      EXPECT_FALSE(none.defined());
      const Tensor sum = (a + list[0] * list[1]) * factor;
      return std::map<std::string, std::optional<Tensor>>{
          {"index", sum.argmax()},
          {"none", std::nullopt},
          {"product", a * list[0]},
          {"sum", sum}};
    };
    auto result = with_checkpoint ? checkpoint(function, a, list, Tensor(), 2.0)
                                  : function(a, list, Tensor(), 2.0);
    EXPECT_EQ(result["index"]->scalar_type(), torch::kLong);
    EXPECT_FALSE(result["index"]->requires_grad());
    EXPECT_FALSE(result["none"]);
    // `product` has no part in the loss.
    result["sum"]->exp().sum().backward();
    EXPECT_FALSE(list[1].grad().defined());
    return std::vector<Tensor>{a.grad(), list[0].grad()};
  };
  const auto plain = run(false);
  const auto checkpointed = run(true);
  EXPECT_TRUE(torch::equal(plain[0], checkpointed[0]));
  EXPECT_TRUE(torch::equal(plain[1], checkpointed[1]));
}

TEST(Checkpoint, KeepsNoActivationsAndFreesItsArgumentsInBackward) {
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::optional<WeakStorage> inside;
  std::optional<WeakStorage> argument;
  const auto storage_of = [](const Tensor& tensor) {
    return tensor.storage().getWeakStorageImpl();
  };
  const Tensor w = torch::ones({2, 2}, torch::requires_grad());
  Tensor y;
  {
    const Tensor x = torch::ones({2, 2}).mm(w);
    argument = storage_of(x);
    y = checkpoint(
        [&](const Tensor& x) {
          const Tensor hidden = x.mm(w);
          inside = storage_of(hidden);
          return torch::tanh(hidden).mm(w);
        },
        x);
  }
  EXPECT_TRUE(inside->expired());
  EXPECT_FALSE(argument->expired());
  y.sum().backward();
  EXPECT_TRUE(inside->expired());
  EXPECT_TRUE(argument->expired());
}

TEST(Checkpoint, WithoutGradIsACall) {
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::ones({2}, torch::requires_grad());
  EXPECT_FALSE(
      checkpoint([](const Tensor& x) { return x * 2; }, x).requires_grad());
}

TEST(Checkpoint, BackwardTwiceNeedsTheGraphRetained) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  Tensor y = checkpoint([](const Tensor& x) { return x.exp(); }, x).sum();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 2 * x.exp()));
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("retain_graph"));
}

TEST(Checkpoint, GradientsOfChosenTensorsAddToNoOthers) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  const Tensor w = torch::ones({2}, torch::requires_grad());
  const Tensor y =
      checkpoint([w](const Tensor& x) { return (x * w).exp(); }, x);
  const auto got = torch::autograd::grad({y.sum()}, {x});
  EXPECT_TRUE(torch::allclose(got[0], torch::ones({2}).exp()));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST(Checkpoint, WhatCannotBeDoneIsAnError) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  Tensor y = checkpoint([](const Tensor& x) { return x.exp(); }, x);
  EXPECT_THAT(
      error_of([&] { torch::autograd::grad({y.sum()}, {x}, {}, true, true); }),
      HasSubstr("create_graph"));

  int calls = 0;
  y = checkpoint(
      [&calls](const Tensor& x) { return x.exp().slice(0, calls++); }, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("returned other tensors than at first"));

  Tensor argument = x * 2;
  y = checkpoint([](const Tensor& x) { return x.exp(); }, argument);
  argument.mul_(3);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("modified by an inplace operation"));
}

// ---- Units -----------------------------------------------------------------

struct CheckpointingHooks : testing::RecordingHooks {
  int recomputed = 0;
  bool checkpoints() const override { return true; }
  void before_recompute() override { ++recomputed; }
};

TEST(CheckpointedUnit, OutlivesItsHolderUntilBackward) {
  auto hooks = std::make_shared<CheckpointingHooks>();
  const Tensor x = torch::ones({1, 2}, torch::requires_grad());
  Tensor y;
  {
    Unit<torch::nn::Linear> linear(2, 3);
    linear->attach(hooks);
    y = linear(x);
  }
  y.sum().backward();
  EXPECT_EQ(hooks->recomputed, 1);
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

struct WritesImpl : torch::nn::Module {
  Tensor forward(Tensor x, std::vector<Tensor>& cache) {
    cache.push_back(x);
    return x * 2;
  }
};
TORCH_MODULE(Writes);

TEST(CheckpointedUnit, ForwardThatWritesToAnArgumentIsAnError) {
  Unit<Writes> unit;
  unit->attach(std::make_shared<CheckpointingHooks>());
  std::vector<Tensor> cache;
  EXPECT_THAT(
      error_of([&] { unit(torch::ones({2}, torch::requires_grad()), cache); }),
      HasSubstr("cannot be called again"));
}

}  // namespace
}  // namespace accordion
