// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::kFeatures;

using testing::on_ranks;
using testing::seeded;

/// An autoencoder whose training never calls forward.
struct CodecImpl : torch::nn::Module {
  CodecImpl() {
    narrow = register_module("narrow", torch::nn::Linear(kFeatures, 3));
    widen = register_module("widen", torch::nn::Linear(3, kFeatures));
  }
  torch::Tensor forward(torch::Tensor x) { return decode(encode(x)); }
  torch::Tensor encode(const torch::Tensor& x) { return narrow(x).tanh(); }
  torch::Tensor decode(torch::Tensor code) const {
    return widen.ptr()->forward(code);
  }
  torch::nn::Linear narrow{nullptr}, widen{nullptr};
};
TORCH_MODULE(Codec);

TEST(UnitCall, ExtraMethodsOfAShardedNetTrainAsOneProcessDoes) {
  auto plain = seeded<Codec>();
  const auto batch = [](int step) { return testing::batch_of(step, 6); };
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    const auto x = batch(step);
    testing::loss_of(plain->decode(plain->encode(x)), x).backward();
    for (auto& parameter : plain->parameters()) {
      parameter.data().sub_(parameter.grad(), 0.1);
    }
  }
  for (const int world : {1, 2, 3}) {
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto net = seeded<Unit<Codec>>();
      fully_shard(net, mesh);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        const auto x = testing::rows_of(batch(step), mesh.rank(), world);
        const auto code = net.call(&CodecImpl::encode, x);
        testing::loss_of(net.call(&CodecImpl::decode, code), x).backward();
        for (auto& parameter : net->parameters()) {
          parameter.data().sub_(parameter.grad(), 0.1);
        }
      }
      for (const auto& expected : plain->named_parameters()) {
        EXPECT_TRUE(torch::allclose(full_parameter(*net, expected.key()),
                                    expected.value(), 1e-5, 1e-6))
            << expected.key() << ", " << world << " ranks";
      }
    });
  }
}

}  // namespace
}  // namespace accordion
