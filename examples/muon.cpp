// SPDX-License-Identifier: BSD-3-Clause
// An optimizer that needs whole matrices, on a sharded module: Muon, which
// makes the momentum of each hidden matrix orthogonal before it steps. Each
// matrix is gathered to one rank, which does the work for all; biases, and the
// first and last layer, are stepped by AdamW on their pieces. The parameters
// are the same for any number of ranks.
//
//     build/bin/accordion run --nproc 3 -- build/bin/example_muon
//
//     [rank 0] step 0  loss 0.261…
//     [rank 0] step 25  loss 0.037…
//     [rank 0] step 50  loss 0.014…
//     [rank 0] fingerprint 6.19…
//
// Source  Jordan et al. 2024, "Muon: an optimizer for hidden layers"
#include <accordion/accordion.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = tanh(first(x));
    for (auto& layer : hidden) {
      x = x + tanh(layer(x));
    }
    return last(x);
  }
  using Layer = accordion::Unit<torch::nn::Linear>;
  Layer first{register_module("first", Layer(8, 30))};
  std::vector<Layer> hidden{register_module("hidden0", Layer(30, 30)),
                            register_module("hidden1", Layer(30, 30)),
                            register_module("hidden2", Layer(30, 30))};
  Layer last{register_module("last", Layer(30, 1))};
};
TORCH_MODULE(Net);

/// The orthogonal matrix nearest to `momentum`, nearly: Newton-Schulz steps
/// drive its singular values towards 1. The shape stays.
torch::Tensor orthogonalized(const torch::Tensor& momentum) {
  const bool tall = momentum.size(0) > momentum.size(1);
  torch::Tensor x = tall ? momentum.t() : momentum;
  x = x / (x.norm() + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const auto gram = x.mm(x.t());
    x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram.mm(gram)).mm(x);
  }
  return tall ? x.t() : x;
}

bool is_hidden_matrix(const accordion::LocalParameter& parameter) {
  return parameter.name.starts_with("hidden") &&
         parameter.global_shape.size() == 2;
}

class Muon {
 public:
  Muon(torch::nn::Module& net, double lr, double momentum = 0.95)
      : net_(net), lr_(lr), momentum_(momentum) {
    for (const auto& parameter : accordion::local_parameters(net)) {
      if (is_hidden_matrix(parameter)) {
        momenta_.push_back(torch::zeros_like(parameter.piece));
      }
    }
  }

  void step() {
    const torch::NoGradGuard no_grad;
    auto matrices = accordion::local_parameters(net_);
    std::erase_if(matrices, [](const auto& p) { return !is_hidden_matrix(p); });
    std::vector<torch::Tensor> updates;  // pieces
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      momenta_[i].mul_(momentum_).add_(matrices[i].gradient);
      updates.push_back(matrices[i].gradient + momentum_ * momenta_[i]);
    }
    accordion::update_whole(net_, matrices, updates,
                            [](std::size_t, const torch::Tensor& whole) {
                              return orthogonalized(whole);
                            });
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      matrices[i].piece.sub_(updates[i], lr_);
    }
  }

 private:
  torch::nn::Module& net_;
  double lr_;
  double momentum_;
  std::vector<torch::Tensor> momenta_;  // [end - begin] each
};

int main() {
  torch::manual_seed(0);
  auto mesh = accordion::DeviceMesh::from_environment();
  accordion::Unit<Net> net;
  std::vector<torch::Tensor> others;
  for (const auto& parameter : net->named_parameters()) {
    if (!parameter.key().starts_with("hidden") ||
        parameter.value().dim() != 2) {
      others.push_back(parameter.value());
    }
  }
  torch::optim::AdamW adamw(others, torch::optim::AdamWOptions(1e-3).eps(1e-3));
  accordion::fully_shard(net, mesh);
  Muon muon(*net, 0.01);

  const auto x = torch::randn({60, 8});  // the same on every rank
  const auto y = x.narrow(1, 0, 1).sin();
  const auto rows = [&](const torch::Tensor& all) {  // this rank's
    return all.tensor_split(mesh.world().world_size())[mesh.rank()];
  };
  for (int step = 0; step <= 50; ++step) {
    net->zero_grad();
    torch::mse_loss(net(rows(x)), rows(y)).backward();
    muon.step();
    adamw.step();
    const torch::NoGradGuard no_grad;
    const auto loss = torch::mse_loss(net(x), y).item<float>();
    if (mesh.rank() == 0 && step % 25 == 0) {
      std::cout << "step " << step << "  loss " << loss << '\n';
    }
  }
  double fingerprint = 0;
  for (const auto& parameter : accordion::local_parameters(*net)) {
    const auto whole = accordion::full_parameter(*net, parameter.name);
    fingerprint +=
        whole.flatten().dot(torch::arange(whole.numel()).cos()).item<double>();
  }
  if (mesh.rank() == 0) {
    std::cout << "fingerprint " << fingerprint << '\n';
  }
}
