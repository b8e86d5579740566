// SPDX-License-Identifier: BSD-3-Clause
//
// Moments and parameters stored in bf16, rounded to nearest or stochastically.
// Gradients are a formula of step and element, so that all ranks of all world
// sizes see the same.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/optim/adamw.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_ranks;
using testing::seeded;

/// Half the spacing of bf16 over the value, at most.
constexpr double kUnitRoundoff = 1.0 / 256;

/// Of element `element` of each parameter.
double gradient_of(int step, std::int64_t element) {
  return 0.1 * std::sin(0.7 * static_cast<double>(element) + 1.3 * step) + 0.05;
}

/// Lets parameters have gradients, whose values steps then replace.
void make_gradients(Unit<testing::UnitNet>& net) {
  const auto dtype = net->head->weight.scalar_type();
  net(testing::batch_of(0, 4).to(dtype)).sum().backward();
}

template <class Gradient>
void set_gradients(Unit<testing::UnitNet>& net, const Gradient& gradient) {
  for (LocalParameter& local : local_parameters(*net)) {
    for (std::int64_t i = local.begin; i < local.end; ++i) {
      local.gradient[i - local.begin] = gradient(i);
    }
  }
}

void train(Unit<testing::UnitNet>& net, AdamW& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    set_gradients(net, [&](auto i) { return gradient_of(step, i); });
    optimizer.step();
  }
}

/// A net whose parameters are stored in `dtype`, with gradients.
Unit<testing::UnitNet> sharded(const DeviceMesh& mesh, c10::ScalarType dtype,
                               Strategy strategy = Strategy::FullShard) {
  auto net = seeded<Unit<testing::UnitNet>>();
  net->to(dtype);
  fully_shard(net, mesh, {.strategy = strategy});
  make_gradients(net);
  return net;
}

/// The numbers between two, of which one is the exact result.
struct Interval {
  double low = 0;
  double high = 0;

  [[nodiscard]] Interval widened(double part) const {
    const double by = part * std::max(std::abs(low), std::abs(high));
    return {low - by, high + by};
  }
  [[nodiscard]] bool holds(double value) const {
    return low <= value && value <= high;
  }
};

/// One element under AdamW in exact arithmetic, but for the rounding of its
/// moments: where they can be, and what that does to the parameter.
struct Bounded {
  Interval parameter = {};
  Interval first = {};
  Interval second = {};

  void step(const AdamWOptions& o, int t, double gradient) {
    constexpr double kFp32 = 1e-6;  // of some ten roundings in fp32
    const Interval m = {o.beta1 * first.low + (1 - o.beta1) * gradient,
                        o.beta1 * first.high + (1 - o.beta1) * gradient};
    const double square = (1 - o.beta2) * gradient * gradient;
    const Interval v = {o.beta2 * second.low + square,
                        o.beta2 * second.high + square};
    const auto root = [&](double value) {
      return std::sqrt(value / (1 - std::pow(o.beta2, t))) + o.eps;
    };
    const double rate = o.lr / (1 - std::pow(o.beta1, t));
    const double longest = rate * m.high / root(m.high > 0 ? v.low : v.high);
    const double shortest = rate * m.low / root(m.low > 0 ? v.high : v.low);
    const double keep = 1 - o.lr * o.weight_decay;
    parameter = Interval{parameter.low * keep - longest,
                         parameter.high * keep - shortest}
                    .widened(kFp32);
    first = m.widened(kUnitRoundoff + kFp32);
    second = v.widened(kUnitRoundoff + kFp32);
  }
};

TEST(AdamWBf16, MomentsStayWithinTheirRoundingsOfExactOnes) {
  constexpr int kSteps = 12;
  for (const int world : {1, 3}) {
    on_ranks(world, [&](const DeviceMesh& mesh) {
      const AdamWOptions options{
          .lr = 0.01, .beta2 = 0.95, .moments_dtype = torch::kBFloat16};
      auto net = sharded(mesh, torch::kFloat);
      std::map<std::string, torch::Tensor> start;
      for (const LocalParameter& local : local_parameters(*net)) {
        start.emplace(local.name, local.piece.clone());
      }
      AdamW optimizer(net, options);
      train(net, optimizer, 0, kSteps);
      for (const LocalParameter& local : local_parameters(*net)) {
        const auto moments = optimizer.moments(local.name).value();
        ASSERT_EQ(moments.first.scalar_type(), torch::kBFloat16);
        ASSERT_EQ(moments.second.scalar_type(), torch::kBFloat16);
        for (std::int64_t i = local.begin; i < local.end; ++i) {
          const std::int64_t at = i - local.begin;
          const double value = start.at(local.name)[at].item<double>();
          Bounded exact{.parameter = {value, value}};
          for (int step = 0; step < kSteps; ++step) {
            const auto gradient = static_cast<float>(gradient_of(step, i));
            exact.step(options, step + 1, gradient);
          }
          EXPECT_TRUE(exact.first.holds(moments.first[at].item<double>()));
          EXPECT_TRUE(exact.second.holds(moments.second[at].item<double>()));
          EXPECT_TRUE(exact.parameter.holds(local.piece[at].item<double>()))
              << local.name << ", element " << i;
          EXPECT_LT(exact.parameter.high - exact.parameter.low,
                    0.1 * options.lr * kSteps);
        }
      }
    });
  }
}

TEST(AdamWBf16, MomentsTakeHalfTheBytesOfFp32) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = sharded(mesh, torch::kFloat);
    AdamW optimizer(net, {.moments_dtype = torch::kBFloat16});
    EXPECT_EQ(optimizer.state_bytes(), sharded_bytes(*net).parameters);
    auto small = sharded(mesh, torch::kBFloat16);
    AdamW exact(small, {.moments_dtype = torch::kFloat});
    EXPECT_EQ(exact.state_bytes(), 4 * sharded_bytes(*small).parameters);
    EXPECT_EQ(exact.moments("head.bias")->first.scalar_type(), torch::kFloat);
  });
}

TEST(AdamWBf16, UnsetMomentsAreStoredAsParametersAre) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    for (const auto dtype :
         {torch::kFloat, torch::kBFloat16, torch::kDouble, torch::kHalf}) {
      auto net = sharded(mesh, dtype);
      AdamW optimizer(net, {});
      optimizer.step();
      EXPECT_EQ(optimizer.moments("head.bias")->second.scalar_type(), dtype);
      EXPECT_EQ(optimizer.state_bytes(), 2 * sharded_bytes(*net).parameters);
    }
  });
}

/// The second moments of all parameters after one gradient of 1 and `steps`
/// of 0, with beta2 = 0.999; over what the first left.
std::vector<double> second_moments_after(int steps, bool stochastic) {
  std::vector<double> result;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    auto net = sharded(mesh, torch::kFloat);
    AdamW optimizer(net, {.moments_dtype = torch::kBFloat16,
                          .stochastic_rounding = stochastic});
    set_gradients(net, [](auto) { return 1.0; });
    optimizer.step();
    set_gradients(net, [](auto) { return 0.0; });
    for (int step = 0; step < steps; ++step) {
      optimizer.step();
    }
    for (const LocalParameter& local : local_parameters(*net)) {
      const auto second = optimizer.moments(local.name)->second;
      for (std::int64_t i = 0; i < second.numel(); ++i) {
        result.push_back(second[i].item<double>() / 0.001);
      }
    }
  });
  return result;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

// Why stochastic rounding exists.
TEST(AdamWBf16, RoundedToNearestASecondMomentNeverFalls) {
  for (const double value : second_moments_after(500, false)) {
    EXPECT_NEAR(value, 1.0, kUnitRoundoff);
  }
}

// A rounding has a deviation of at most half a spacing, 2^-8 of the value, and
// decays with it: of what is left after n steps each of their n + 1 roundings
// makes up 2^-8 or less.
TEST(AdamWBf16, RoundedStochasticallyASecondMomentFallsAsItShould) {
  constexpr int kZeros = 500;
  const std::vector<double> values = second_moments_after(kZeros, true);
  const double expected = std::pow(0.999, kZeros);
  const double deviation = expected / 256 * std::sqrt(kZeros + 1.0);
  EXPECT_NEAR(mean_of(values), expected,
              5 * deviation / std::sqrt(static_cast<double>(values.size())));
}

/// bf16 parameters after steps of a thousandth from 1, all in one direction.
std::vector<double> parameters_after(int steps, AdamWOptions options) {
  std::vector<double> result;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    auto net = sharded(mesh, torch::kBFloat16);
    options.weight_decay = 0;
    AdamW optimizer(net, options);
    for (LocalParameter& local : local_parameters(*net)) {
      local.piece.fill_(1.0);
    }
    set_gradients(net, [](auto) { return 1.0; });
    for (int step = 0; step < steps; ++step) {
      optimizer.step();
    }
    for (const LocalParameter& local : local_parameters(*net)) {
      for (std::int64_t i = 0; i < local.piece.numel(); ++i) {
        result.push_back(local.piece[i].item<double>());
      }
    }
  });
  return result;
}

// Below 1 the spacing is 2^-8, of which a rounding's deviation is half at most.
TEST(AdamWBf16, StochasticRoundingMovesParametersBySmallSteps) {
  constexpr int kSteps = 100;
  for (const auto moments : {torch::kFloat, torch::kBFloat16}) {
    const auto nearest =
        parameters_after(kSteps, {.lr = 1e-3, .moments_dtype = moments});
    EXPECT_EQ(mean_of(nearest), 1.0);
  }
  const auto values = parameters_after(kSteps, {.lr = 1e-3,
                                                .moments_dtype = torch::kFloat,
                                                .stochastic_rounding = true});
  const double deviation = std::sqrt(kSteps) / 512;
  EXPECT_NEAR(mean_of(values), 1 - kSteps * 1e-3,
              5 * deviation / std::sqrt(static_cast<double>(values.size())));
}

/// Whole parameters after some stochastic steps, by name.
std::map<std::string, torch::Tensor> trained(const DeviceMesh& mesh,
                                             c10::ScalarType stored,
                                             Strategy strategy,
                                             std::uint64_t seed = 7) {
  auto net = sharded(mesh, stored, strategy);
  AdamW optimizer(net, {.lr = 0.01,
                        .moments_dtype = torch::kBFloat16,
                        .stochastic_rounding = true,
                        .rounding_seed = seed});
  train(net, optimizer, 0, 5);
  std::map<std::string, torch::Tensor> result;
  for (const LocalParameter& local : local_parameters(*net)) {
    result.emplace(local.name, full_parameter(*net, local.name).clone());
  }
  return result;
}

TEST(AdamWBf16, StochasticRoundingIsTheSameForAllWorldsAndStrategies) {
  for (const auto stored : {torch::kFloat, torch::kBFloat16}) {
    std::map<std::string, torch::Tensor> expected;
    on_ranks(1, [&](const DeviceMesh& mesh) {
      expected = trained(mesh, stored, Strategy::FullShard);
    });
    for (const int world : {2, 3, 4}) {
      for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
        on_ranks(world, [&](const DeviceMesh& mesh) {
          for (const auto& [name, whole] : trained(mesh, stored, strategy)) {
            EXPECT_TRUE(torch::equal(whole, expected.at(name)))
                << name << ", " << world << " ranks";
          }
        });
      }
    }
  }
}

TEST(AdamWBf16, AnotherSeedRoundsOtherwise) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    const auto stored = torch::kFloat;
    const auto first = trained(mesh, stored, Strategy::FullShard, 7);
    const auto again = trained(mesh, stored, Strategy::FullShard, 7);
    const auto other = trained(mesh, stored, Strategy::FullShard, 8);
    for (const auto& [name, whole] : first) {
      EXPECT_TRUE(torch::equal(whole, again.at(name))) << name;
      EXPECT_FALSE(torch::equal(whole, other.at(name))) << name;
    }
  });
}

/// The first moment of a parameter after a step from zero that is said not to
/// be its first.
torch::Tensor first_moment_after(const DeviceMesh& mesh, std::int64_t steps,
                                 const std::string& name) {
  auto net = sharded(mesh, torch::kFloat);
  AdamW optimizer(
      net, {.moments_dtype = torch::kBFloat16, .stochastic_rounding = true});
  optimizer.set_steps({{name, steps}});
  set_gradients(net, [](auto i) { return gradient_of(0, i); });
  optimizer.step();
  return optimizer.moments(name)->first.clone();
}

TEST(AdamWBf16, EveryStepAndParameterRoundsOtherwise) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    const auto up = "block0.up.weight";
    const auto first = first_moment_after(mesh, 0, up);
    EXPECT_TRUE(torch::equal(first, first_moment_after(mesh, 0, up)));
    EXPECT_FALSE(torch::equal(first, first_moment_after(mesh, 1, up)));
    EXPECT_FALSE(
        torch::equal(first, first_moment_after(mesh, 0, "block1.up.weight")));
  });
}

// Frozen neighbours cut the ranges that are updated in one pass.
TEST(AdamWBf16, FreezingChangesNoOtherParametersRounding) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto expected = trained(mesh, torch::kFloat, Strategy::FullShard);
    auto net = sharded(mesh, torch::kFloat);
    net->head->bias.set_requires_grad(false);
    const auto bias = full_parameter(*net, "head.bias").clone();
    AdamW optimizer(net, {.lr = 0.01,
                          .moments_dtype = torch::kBFloat16,
                          .stochastic_rounding = true,
                          .rounding_seed = 7});
    train(net, optimizer, 0, 5);
    for (const auto& [name, whole] : expected) {
      EXPECT_TRUE(torch::equal(full_parameter(*net, name),
                               name == "head.bias" ? bias : whole))
          << name;
    }
  });
}

TEST(AdamWBf16, RejectsWhatItCannotStoreOrRound) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    const auto message = [&](c10::ScalarType stored, AdamWOptions options) {
      auto net = sharded(mesh, stored);
      return message_of<c10::ValueError>(
          [&] { AdamW optimizer(net, options); });
    };
    EXPECT_THAT(message(torch::kFloat, {.moments_dtype = torch::kHalf}),
                HasSubstr("[AdamW] moments_dtype is Half; give kFloat"));
    EXPECT_THAT(message(torch::kDouble, {.moments_dtype = torch::kBFloat16}),
                AllOf(HasSubstr("parameter 'head.weight' is stored as "
                                "Double on cpu, but moments_dtype BFloat16 is"),
                      HasSubstr("Leave them unset here.")));
    EXPECT_THAT(message(torch::kDouble, {.moments_dtype = torch::kBFloat16,
                                         .stochastic_rounding = true}),
                HasSubstr("BFloat16 and stochastic_rounding are for fp32"));
    EXPECT_THAT(message(torch::kFloat, {.stochastic_rounding = true}),
                HasSubstr("neither parameters nor moments are stored in bf16"));
    EXPECT_EQ(message(torch::kBFloat16, {.stochastic_rounding = true}),
              "nothing was thrown");
  });
}

}  // namespace
}  // namespace accordion
