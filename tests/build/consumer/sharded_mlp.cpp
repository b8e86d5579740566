// SPDX-License-Identifier: BSD-3-Clause
//
// Trains a small module, sharded over the ranks that a launcher started, or
// over this one alone.
#include <accordion/accordion.h>
#include <torch/torch.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  accordion::Unit<torch::nn::Linear> first{8, 16};
  accordion::Unit<torch::nn::Linear> second{16, 1};

  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return second(torch::relu(first(x)));
  }
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);
  const auto mesh = accordion::DeviceMesh::from_environment();
  accordion::Unit<Net> net;
  accordion::fully_shard(net, mesh);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const torch::Tensor x = torch::randn({32, 8});
  const torch::Tensor y = x.sum(1, /*keepdim=*/true);

  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(net(x), y);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    first = step == 0 ? last : first;
  }
  std::printf("loss %.4f -> %.4f\n", first, last);
  return last < first / 2 ? 0 : 1;
}
