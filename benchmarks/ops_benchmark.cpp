// SPDX-License-Identifier: BSD-3-Clause
// Times the fused operators and a decoder made of them against LibTorch's own.
//
//   ops_benchmark [small|wide]…          one thread; both models by default
//
// Every pair is measured alternately; the median of a few repeats is printed,
// in processor time.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "accordion/ops/composite.h"
#include "benchmarks/timing.h"

namespace {

namespace ops = accordion::ops;
using accordion::benchmarks::median;
using accordion::benchmarks::processor_ms;
using at::Tensor;

struct Model {
  const char* name;
  int64_t hidden, inner, heads, layers, batch, seq_len;
  [[nodiscard]] int64_t head_dim() const { return hidden / heads; }
};

constexpr Model kModels[] = {{"small", 512, 1376, 8, 8, 4, 256},
                             {"wide", 1024, 2752, 16, 8, 2, 128}};
constexpr int64_t kVocabSize = 256;
constexpr double kEps = 1e-5;

/// One set of operators: ours or LibTorch's.
struct Operators {
  Tensor (*rms_norm)(const Tensor&, const Tensor&, double);
  std::pair<Tensor, Tensor> (*rope)(const Tensor&, const Tensor&,
                                    const ops::RopeTable&);
  Tensor (*swiglu)(const Tensor&, const Tensor&);
  Tensor (*attention)(const Tensor&, const Tensor&, const Tensor&, int64_t);
  ops::CrossEntropy (*cross_entropy)(const Tensor&, const Tensor&, double);
};

constexpr Operators kFused{ops::rms_norm, ops::rope, ops::swiglu,
                           ops::causal_attention, ops::cross_entropy_};
constexpr Operators kComposite{
    ops::composite::rms_norm, ops::composite::rope, ops::composite::swiglu,
    ops::composite::causal_attention, ops::composite::cross_entropy};

/// Runs both, alternately, and prints their medians.
void compare(const std::string& what, at::ScalarType dtype, int repeats,
             const std::function<void(const Operators&)>& body) {
  std::vector<double> fused;
  std::vector<double> composite;
  for (int i = -1; i < repeats; ++i) {
    const double ours = processor_ms([&] { body(kFused); });
    const double theirs = processor_ms([&] { body(kComposite); });
    if (i >= 0) {  // the first of each is the warm-up
      fused.push_back(ours);
      composite.push_back(theirs);
    }
  }
  const double ours = median(fused);
  const double theirs = median(composite);
  std::printf("%-24s %-8s %10.2f %10.2f %8.2fx\n", what.c_str(),
              dtype == at::kFloat ? "fp32" : "bf16", ours, theirs,
              theirs / ours);
  std::fflush(stdout);
}

Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape).mul(0.05).to(dtype).requires_grad_();
}

/// The seven matrices and two norms of a layer.
struct Layer {
  Tensor q, k, v, o, gate, up, down, first_norm, second_norm;

  Layer(const Model& m, at::ScalarType dtype)
      : q(leaf({m.hidden, m.hidden}, dtype)),
        k(leaf({m.hidden, m.hidden}, dtype)),
        v(leaf({m.hidden, m.hidden}, dtype)),
        o(leaf({m.hidden, m.hidden}, dtype)),
        gate(leaf({m.inner, m.hidden}, dtype)),
        up(leaf({m.inner, m.hidden}, dtype)),
        down(leaf({m.hidden, m.inner}, dtype)),
        first_norm(leaf({m.hidden}, dtype)),
        second_norm(leaf({m.hidden}, dtype)) {}

  Tensor forward(const Tensor& x, const Model& m, const ops::RopeTable& table,
                 const Operators& use) const {
    const auto heads = [&m](const Tensor& t) {
      return t.view({m.batch, m.seq_len, m.heads, m.head_dim()});
    };
    const Tensor normed = use.rms_norm(x, first_norm, kEps);
    const auto [rotated_q, rotated_k] = use.rope(
        heads(at::linear(normed, q)), heads(at::linear(normed, k)), table);
    const Tensor attended =
        use.attention(rotated_q, rotated_k, heads(at::linear(normed, v)),
                      ops::kWholeSequence);
    const Tensor middle = x + at::linear(attended.flatten(2), o);
    const Tensor second = use.rms_norm(middle, second_norm, kEps);
    return middle + at::linear(use.swiglu(at::linear(second, gate),
                                          at::linear(second, up)),
                               down);
  }
};

void time_operators(const Model& m, at::ScalarType dtype) {
  const std::string prefix = std::string(m.name) + " ";
  const Tensor x = leaf({m.batch, m.seq_len, m.hidden}, dtype);
  const Tensor weight = leaf({m.hidden}, dtype);
  compare(prefix + "rms_norm", dtype, 15, [&](const Operators& use) {
    torch::autograd::grad({use.rms_norm(x, weight, kEps)}, {x, weight},
                          {x.detach()});
  });
  const Tensor q = leaf({m.batch, m.seq_len, m.heads, m.head_dim()}, dtype);
  const Tensor k = leaf(q.sizes(), dtype);
  const Tensor v = leaf(q.sizes(), dtype);
  const auto table = ops::make_rope_table(m.seq_len, m.head_dim(), 1e4, dtype);
  compare(prefix + "rope", dtype, 15, [&](const Operators& use) {
    const auto [a, b] = use.rope(q, k, table);
    torch::autograd::grad({a, b}, {q, k}, {q.detach(), k.detach()});
  });
  compare(prefix + "attention", dtype, 9, [&](const Operators& use) {
    torch::autograd::grad({use.attention(q, k, v, ops::kWholeSequence)},
                          {q, k, v}, {q.detach()});
  });
  const Tensor gate = leaf({m.batch, m.seq_len, m.inner}, dtype);
  const Tensor up = leaf(gate.sizes(), dtype);
  compare(prefix + "swiglu", dtype, 15, [&](const Operators& use) {
    torch::autograd::grad({use.swiglu(gate, up)}, {gate, up}, {up.detach()});
  });
  const Tensor logits = leaf({m.batch * m.seq_len, kVocabSize}, dtype);
  const Tensor targets = at::randint(kVocabSize, {m.batch * m.seq_len});
  compare(prefix + "cross_entropy", dtype, 15, [&](const Operators& use) {
    torch::autograd::grad({use.cross_entropy(logits * 1, targets, 100).loss},
                          {logits});
  });
}

void time_step(const Model& m, at::ScalarType dtype) {
  std::vector<Layer> layers;
  for (int64_t i = 0; i < m.layers; ++i) {
    layers.emplace_back(m, dtype);
  }
  const Tensor embedding = leaf({kVocabSize, m.hidden}, dtype);
  const Tensor head = leaf({kVocabSize, m.hidden}, dtype);
  const Tensor norm = leaf({m.hidden}, dtype);
  std::vector<Tensor> parameters = {embedding, head, norm};
  for (const Layer& l : layers) {
    parameters.insert(parameters.end(), {l.q, l.k, l.v, l.o, l.gate, l.up,
                                         l.down, l.first_norm, l.second_norm});
  }
  const Tensor tokens = at::randint(kVocabSize, {m.batch, m.seq_len});
  const auto table = ops::make_rope_table(m.seq_len, m.head_dim(), 1e4, dtype);
  compare(std::string(m.name) + " forward+backward", dtype, 5,
          [&](const Operators& use) {
            Tensor x = at::embedding(embedding, tokens);
            for (const Layer& layer : layers) {
              x = layer.forward(x, m, table, use);
            }
            const Tensor logits =
                at::linear(use.rms_norm(x, norm, kEps), head).flatten(0, 1);
            const auto divisor = static_cast<double>(tokens.numel());
            torch::autograd::grad(
                {use.cross_entropy(logits, tokens.flatten(), divisor).loss},
                parameters);
          });
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  std::printf("%-24s %-8s %10s %10s %9s\n", "milliseconds, one thread", "dtype",
              "fused", "composite", "speed-up");
  for (const Model& model : kModels) {
    if (!wanted.empty() && std::ranges::count(wanted, model.name) == 0) {
      continue;
    }
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      time_operators(model, dtype);
      time_step(model, dtype);
    }
  }
}
