// SPDX-License-Identifier: BSD-3-Clause
// A LibTorch training loop, sharded by four changed lines.
//
//     build/bin/accordion run --nproc 2 -- build/bin/example_four_lines
//
//     [rank 0] step 0  loss 0.5…
//     [rank 0] step 99  loss 0.0…
#include <accordion/accordion.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return head(tanh(hidden(x))); }
  accordion::Unit<torch::nn::Linear> hidden{  // 1: was torch::nn::Linear
      register_module("hidden", accordion::Unit<torch::nn::Linear>(8, 64))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(64, 1))};
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(0);  // the same parameters on every rank
  auto mesh = accordion::DeviceMesh::from_environment();
  accordion::Unit<Net> net;  // 2: was Net
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);
  accordion::fully_shard(net, mesh);     // 3
  torch::manual_seed(1 + mesh.rank());  // other data on every rank
  for (int step = 0; step < 100; ++step) {
    const auto x = torch::randn({32, 8});
    optimizer.zero_grad();
    auto loss = torch::mse_loss(net(x), x.narrow(1, 0, 1).sin());
    loss.backward();
    accordion::clip_grad_norm_(net, 1.0);  // 4: was torch::nn::utils::…
    optimizer.step();
    if (mesh.rank() == 0 && step % 33 == 0) {
      std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
    }
  }
}
