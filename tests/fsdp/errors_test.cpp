// SPDX-License-Identifier: BSD-3-Clause
// Every mistake of a user's: one error that says what, where, what to do.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::message_of;
using testing::on_ranks;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

#define EXPECT_MESSAGE(message, phrase) \
  EXPECT_NE((message).find(phrase), std::string::npos) << (message)

template <class F>
std::string value_error(F&& f) {
  return message_of<c10::ValueError>(std::forward<F>(f));
}

TEST(FullyShardErrors, ParametersInNoUnit) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    testing::UnitNet net;  // the root is not a unit
    const auto message = value_error([&] { fully_shard(*net, mesh); });
    EXPECT_MESSAGE(message, "2 parameters belong to no unit");
    EXPECT_MESSAGE(message, "'head.weight' [3, 7]");
    EXPECT_MESSAGE(message, "accordion::Unit<");
  });
}

TEST(FullyShardErrors, NoUnitsAtAll) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    torch::nn::Linear net(2, 2);
    EXPECT_MESSAGE(value_error([&] { fully_shard(*net, mesh); }),
                   "contains no accordion::Unit");
  });
}

TEST(FullyShardErrors, ShardedTwice) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = Net();
    fully_shard(net, mesh);
    EXPECT_MESSAGE(value_error([&] { fully_shard(net, mesh); }),
                   "sharded already");
  });
}

TEST(FullyShardErrors, RanksWithOtherValuesOrShapes) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<torch::nn::Linear> net(3, 2);
    torch::nn::init::constant_(net->weight, mesh.rank());
    EXPECT_MESSAGE(value_error([&] { fully_shard(net, mesh); }),
                   "have other values on rank 1");
    Unit<torch::nn::Linear> other(3, 2 + mesh.rank());
    EXPECT_MESSAGE(value_error([&] { fully_shard(other, mesh); }),
                   "has other parameters on rank 1");
  });
}

/// Has one parameter, made as the options say.
struct OneParameterImpl : torch::nn::Module {
  explicit OneParameterImpl(const torch::TensorOptions& options) {
    weight = register_parameter("weight", torch::zeros({3}, options));
  }
  torch::Tensor forward(torch::Tensor x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(OneParameter);

TEST(FullyShardErrors, ComplexAndMetaParametersThatNobodyCanFill) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    Unit<OneParameter> complex(torch::dtype(torch::kComplexFloat));
    EXPECT_MESSAGE(value_error([&] { fully_shard(complex, mesh); }),
                   "is complex");
    Unit<OneParameter> meta(torch::device(torch::kMeta));
    EXPECT_MESSAGE(value_error([&] { fully_shard(meta, mesh); }),
                   "nobody says how 1 parameter starts: 'weight' [3]");
  });
}

TEST(FullyShardErrors, OptionsOutOfRange) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = Net();
    EXPECT_MESSAGE(
        value_error([&] { fully_shard(net, mesh, {.prefetch = -1}); }),
        "prefetch is -1");
    EXPECT_MESSAGE(value_error([&] {
                     fully_shard(net, mesh,
                                 {.precision = {.param_dtype = torch::kInt}});
                   }),
                   "choose a floating-point dtype");
  });
}

TEST(ShardedErrors, ParameterUsedOutsideOfItsUnit) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    auto penalty = net->blocks[0]->up->weight.square().sum();
    const auto message = message_of<c10::Error>([&] { penalty.backward(); });
    EXPECT_MESSAGE(message, "'block0.up.weight' arrived for its piece");
    EXPECT_MESSAGE(message, "outside the forward of its unit 'block0'");
  });
}

TEST(ShardedErrors, ForwardThroughABaseClassReadsReshardedMemory) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    // Not through the unit: the module computes with its piece.
    EXPECT_THROW(net->blocks[0]->as<testing::BlockImpl>()->forward(
                     testing::batch_of(0, 2)),
                 c10::Error);
  });
}

TEST(ShardedErrors, ReplacedPieces) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    torch::NoGradGuard no_grad;
    const auto forward = [&] { return net(testing::batch_of(0, 2)); };
    auto& weight = net->blocks[0]->up->weight;

    weight.set_data(torch::full_like(weight, 0.5));  // of the piece's shape
    forward();
    EXPECT_TRUE(torch::equal(full_parameter(*net, "block0.up.weight"),
                             torch::full({13, 7}, 0.5)));

    const auto whole = torch::arange(91, torch::kFloat).view({13, 7});
    weight.set_data(whole.clone());  // of the global shape
    forward();
    EXPECT_TRUE(torch::equal(full_parameter(*net, "block0.up.weight"), whole));

    weight.set_data(torch::zeros({2, 2}));
    const auto message = value_error(forward);
    EXPECT_MESSAGE(message, "'block0.up.weight' was replaced");
    EXPECT_MESSAGE(message, "[2, 2]");
  });
}

TEST(ShardedErrors, SaveCloneAndToNameTheAlternative) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    torch::serialize::OutputArchive archive;
    EXPECT_MESSAGE(value_error([&] { net->save(archive); }), "full_parameter");
    EXPECT_MESSAGE(value_error([&] { net->blocks[0]->clone(); }),
                   "Clone before fully_shard");
    EXPECT_MESSAGE(value_error([&] { net->to(torch::kDouble); }), "precision");
  });
}

TEST(ShardedErrors, FunctionsOnAModuleThatIsNotSharded) {
  auto net = Net();
  EXPECT_MESSAGE(value_error([&] { clip_grad_norm_(net, 1.0); }),
                 "Call accordion::fully_shard(net, mesh) first");
  EXPECT_MESSAGE(value_error([&] { AdamW optimizer(net, {}); }),
                 "is not sharded");
}

TEST(ShardedErrors, NamesThatDoNotExistAndFrozenGradients) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    net->head->bias.set_requires_grad(false);
    fully_shard(net, mesh);
    EXPECT_MESSAGE(value_error([&] { full_parameter(*net, "block9.w"); }),
                   "no parameter is named 'block9.w'");
    EXPECT_MESSAGE(value_error([&] { full_gradient(*net, "head.bias"); }),
                   "is frozen");
  });
}

TEST(ShardedErrors, RanksThatRunOtherUnitsGetAnErrorNotAHang) {
  std::vector<std::string> messages(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    const torch::NoGradGuard no_grad;
    messages[static_cast<std::size_t>(mesh.rank())] =
        message_of<CommError>([&] {
          net->blocks[static_cast<std::size_t>(mesh.rank())](
              testing::batch_of(0, 2));
        });
  });
  for (const std::string& message : messages) {
    EXPECT_MESSAGE(message, "block0");
    EXPECT_MESSAGE(message, "block1");
  }
}

}  // namespace
}  // namespace accordion
