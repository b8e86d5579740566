// SPDX-License-Identifier: BSD-3-Clause
// Operators that write a parameter's gradient where it is reduced.
#include "accordion/module/grad_destination.h"

#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// x times the transpose of weight, which counts how often its backward got
/// memory to write to.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, int64_t counter) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["counter"] = counter;
    return x.mm(weight.t());
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dy = gradients[0];
    at::Tensor dweight = grad_destination(saved[1]);
    if (dweight.defined()) {
      ++*reinterpret_cast<int*>(ctx->saved_data["counter"].toInt());
      at::mm_out(dweight, dy.t(), saved[0]);
    } else {
      dweight = dy.t().mm(saved[0]);
    }
    return {dy.mm(saved[1]), dweight, at::Tensor()};
  }
};

constexpr int kWidth = 7;

struct ProductsImpl : torch::nn::Module {
  explicit ProductsImpl(int num_uses) : num_uses(num_uses) {
    weight = register_parameter("weight", torch::randn({kWidth, kWidth}) / 3);
    other = register_parameter("other", torch::randn({kWidth, kWidth}) / 3);
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto counter = reinterpret_cast<int64_t>(&num_offered);
    for (int i = 0; i < num_uses; ++i) {
      x = torch::tanh(Product::apply(x, weight, counter));
      // As any operator does it: its gradient is copied.
      x = i == 0 ? x.mm(other) : x;
    }
    return x;
  }
  int num_uses;
  int num_offered = 0;
  torch::Tensor weight, other;
};
TORCH_MODULE(Products);

torch::Tensor batch(int step) {
  return testing::batch_of(step, 4);
}

void backward(auto& net, int step) {
  net(batch(step)).square().sum().backward();
}

/// The gradient of `weight` in a module that is not sharded.
torch::Tensor expected_gradient(int num_uses, std::vector<int> steps) {
  auto plain = seeded<Products>(num_uses);
  for (const int step : steps) {
    backward(plain, step);
  }
  EXPECT_EQ(plain->num_offered, 0) << "not sharded";
  return plain->weight.grad();
}

void expect_gradient(torch::nn::Module& net, const torch::Tensor& expected) {
  const auto gradient = full_gradient(net, "weight");
  EXPECT_TRUE(torch::allclose(gradient, expected, 1e-5, 1e-6))
      << gradient << "\n"
      << expected;
}

TEST(GradDestination, IsOfferedOnceABackward) {
  for (const int num_uses : {1, 2, 3}) {
    const auto expected = expected_gradient(num_uses, {0});
    on_ranks(2, [&](const DeviceMesh& mesh) {
      auto net = seeded<Unit<Products>>(num_uses);
      fully_shard(net, mesh);
      for (int pass = 1; pass <= 3; ++pass) {
        backward(net, 0);
        EXPECT_EQ(net->num_offered, pass) << num_uses << " uses";
        expect_gradient(*net, expected);
        net->zero_grad();
      }
    });
  }
}

TEST(GradDestination, IsOfferedInTheDtypeOfComputation) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(1);
    fully_shard(net, mesh,
                {.precision = {.param_dtype = torch::kBFloat16,
                               .reduce_dtype = torch::kFloat}});
    backward(net, 0);
    EXPECT_EQ(net->num_offered, 1);
  });
}

TEST(GradDestination, IsNotOfferedInAnotherDtype) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(1);
    // Added up over microbatches in fp32, computed in bf16.
    fully_shard(net, mesh,
                {.precision = {.param_dtype = torch::kBFloat16},
                 .accumulation = Accumulation::Unsharded});
    set_is_last_backward(*net, false);
    backward(net, 0);
    EXPECT_EQ(net->num_offered, 0);
    set_is_last_backward(*net, true);
    backward(net, 1);
    EXPECT_EQ(full_gradient(*net, "weight").scalar_type(), torch::kFloat);
  });
}

TEST(GradDestination, AnEarlierGradientIsAddedTo) {
  const auto expected = expected_gradient(2, {0, 1});
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(2);
    fully_shard(net, mesh, {.accumulation = Accumulation::Unsharded});
    for (int step = 0; step < 2; ++step) {
      set_is_last_backward(*net, step == 1);
      backward(net, step);
    }
    expect_gradient(*net, expected);
  });
}

TEST(GradDestination, SeveralBackwardsOfOnePass) {
  const auto expected = expected_gradient(1, {0, 1});
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(1);
    fully_shard(net, mesh);
    const auto first = net(batch(0)).square().sum();
    const auto second = net(batch(1)).square().sum();
    first.backward();
    second.backward();
    expect_gradient(*net, expected);
  });
}

TEST(GradDestination, AHookKeepsWhatItGot) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(1);
    fully_shard(net, mesh);
    torch::Tensor kept;
    net->weight.register_hook(
        [&](const torch::Tensor& gradient) { kept = gradient; });
    backward(net, 0);
    EXPECT_EQ(net->num_offered, 0);
    const auto copy = kept.clone();
    backward(net, 1);
    EXPECT_FALSE(torch::equal(kept, copy)) << "the hook ran again";
  });
}

TEST(GradDestination, ATiedParameterHasNone) {
  auto plain = seeded<Products>(2);
  plain->other.set_data(plain->weight.detach());
  backward(plain, 0);
  const auto expected = plain->weight.grad() + plain->other.grad();
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(2);
    net->other.set_data(net->weight.detach());
    fully_shard(net, mesh);
    backward(net, 0);
    EXPECT_EQ(net->num_offered, 0);
    expect_gradient(*net, expected);
  });
}

TEST(GradDestination, AGradientThatSomebodyAskedForIsTheirs) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<Products>>(1);
    fully_shard(net, mesh);
    auto x = batch(0).requires_grad_();
    const auto loss = net(x).square().sum();
    EXPECT_TRUE(torch::autograd::grad({loss}, {x})[0].defined());
    EXPECT_EQ(net->num_offered, 0);
  });
}

}  // namespace
}  // namespace accordion
