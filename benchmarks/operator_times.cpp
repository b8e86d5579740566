// SPDX-License-Identifier: BSD-3-Clause
// Times fused operators, forward and backward, for ops.py, which times
// LibTorch's and compiled ones in turn with them.
//
// Each line of standard input is a question:
//
//   OPERATOR fp32|bf16 batch=4 seq=256 hidden=512 inner=1376 heads=8 vocab=256
//   window=0
//
// Each line of standard output its answer: milliseconds a call, and what the
// machine would need at least, measured beside it: to move the bytes that must
// be read and written, in buffers as large, or to multiply as much.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "accordion/ops/attention.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/ops/embedding.h"
#include "accordion/ops/gelu.h"
#include "accordion/ops/layer_norm.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/linear_cross_entropy.h"
#include "accordion/ops/rms_norm.h"
#include "accordion/ops/rope.h"
#include "accordion/ops/swiglu.h"
#include "benchmarks/timing.h"

namespace {

namespace ops = accordion::ops;
using accordion::benchmarks::processor_ms;
using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kEps = 1e-5;
constexpr int64_t kLossChunk = 128;  // tokens
constexpr double kSampleMs = 20;

struct Question {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::map<std::string, int64_t> sizes;
  [[nodiscard]] int64_t operator[](const char* key) const {
    return sizes.at(key);
  }
  [[nodiscard]] int64_t tokens() const {
    return sizes.at("batch") * sizes.at("seq");
  }
  [[nodiscard]] int64_t head_dim() const {
    return sizes.at("hidden") / sizes.at("heads");
  }
};

/// A call to time, and what it must do whatever the implementation.
struct Call {
  std::function<void()> body;
  double elements_moved = 0;  ///< read or written
  double flops = 0;           ///< of products
};

Tensor leaf(const Question& q, at::IntArrayRef shape) {
  return at::randn(shape).mul(0.5).to(q.dtype).requires_grad_();
}

/// Sends the same random gradients back through what `forward` returns.
Call call_of(Tensors leaves, std::function<Tensors()> forward) {
  Tensors directions;
  for (const Tensor& result : forward()) {
    // A loss is not scaled, as it is not in training.
    directions.push_back(result.dim() == 0 ? at::ones_like(result.detach())
                                           : at::randn_like(result.detach()));
  }
  return {.body = [=] {
    (void)torch::autograd::grad(forward(), leaves, directions);
  }};
}

double numel_of(const Tensors& tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors) {
    sum += static_cast<double>(tensor.numel());
  }
  return sum;
}

/// A norm of a residual stream behind a branch.
Call norm(const Question& q) {
  const std::vector<int64_t> shape = {q["batch"], q["seq"], q["hidden"]};
  const Tensor x = leaf(q, shape);
  const Tensor branch = leaf(q, shape);
  const Tensor weight = leaf(q, {q["hidden"]});
  const Tensor bias = leaf(q, {q["hidden"]});
  Call call = q.name == "rms_norm"
                  ? call_of({x, branch, weight},
                            [=] {
                              const auto [sum, normed] =
                                  ops::add_rms_norm(x, branch, weight, kEps);
                              return Tensors{sum, normed.value()};
                            })
                  : call_of({x, branch, weight, bias}, [=] {
                      const auto [sum, normed] =
                          ops::add_layer_norm(x, branch, weight, bias, kEps);
                      return Tensors{sum, normed.value()};
                    });
  // Forward: 2 read, 2 written; backward: sum and 2 gradients read, 1 written.
  call.elements_moved = 8 * numel_of({x});
  return call;
}

Call rope(const Question& q) {
  const Tensor a = leaf(q, {q["batch"], q["seq"], q["heads"], q.head_dim()});
  const Tensor b = leaf(q, a.sizes());
  const auto table = ops::make_rope_table(q["seq"], q.head_dim(), 1e4, q.dtype);
  Call call = call_of({a, b}, [=] {
    const auto [x, y] = ops::rope(a, b, table);
    return Tensors{x, y};
  });
  call.elements_moved = 4 * numel_of({a, b});
  return call;
}

Call activation(const Question& q) {
  const Tensor x = leaf(q, {q["batch"], q["seq"], q["inner"]});
  if (q.name == "swiglu") {
    const Tensor up = leaf(q, x.sizes());
    Call call = call_of({x, up}, [=] { return Tensors{ops::swiglu(x, up)}; });
    call.elements_moved = 8 * numel_of({x});  // 2 + 1, 3 + 2
    return call;
  }
  const bool tanh = q.name == "gelu_tanh";
  const Tensor bias = leaf(q, {q["inner"]});
  Call call =
      tanh ? call_of({x},
                     [=] { return Tensors{ops::gelu(x, ops::GeluForm::Tanh)}; })
           : call_of({x, bias}, [=] {
               return Tensors{ops::gelu(x, ops::GeluForm::Exact, bias)};
             });
  call.elements_moved = 5 * numel_of({x});  // 1 + 1, 2 + 1
  return call;
}

Call cross_entropy(const Question& q) {
  const Tensor targets = at::randint(q["vocab"], {q.tokens()});
  const auto divisor = static_cast<double>(q.tokens());
  const double logits = divisor * static_cast<double>(q["vocab"]);
  if (q.name == "cross_entropy") {
    const Tensor x = leaf(q, {q.tokens(), q["vocab"]});
    Call call = call_of({x}, [=] {
      return Tensors{ops::cross_entropy(x, targets, divisor).loss};
    });
    call.elements_moved = 2 * logits;
    return call;
  }
  const Tensor x = leaf(q, {q.tokens(), q["hidden"]});
  const Tensor weight = leaf(q, {q["vocab"], q["hidden"]});
  Call call = call_of({x, weight}, [=] {
    return Tensors{
        ops::linear_cross_entropy(x, weight, targets, divisor, kLossChunk)
            .loss};
  });
  call.flops = 6 * logits * static_cast<double>(q["hidden"]);
  return call;
}

Call embedding(const Question& q) {
  const Tensor weight = leaf(q, {q["vocab"], q["hidden"]});
  const Tensor tokens = at::randint(q["vocab"], {q["batch"], q["seq"]});
  Call call = call_of({weight},
                      [=] { return Tensors{ops::embedding(weight, tokens)}; });
  // Rows read and written in forward; their gradients read, all rows' written.
  call.elements_moved =
      3.0 * static_cast<double>(q.tokens() * q["hidden"]) + numel_of({weight});
  return call;
}

Call attention(const Question& q) {
  const Tensor query =
      leaf(q, {q["batch"], q["seq"], q["heads"], q.head_dim()});
  const Tensor key = leaf(q, query.sizes());
  const Tensor value = leaf(q, query.sizes());
  const int64_t window = q["window"] > 0 ? q["window"] : ops::kWholeSequence;
  Call call = call_of({query, key, value}, [=] {
    return Tensors{ops::causal_attention(query, key, value, window)};
  });
  double seen = 0;
  for (int64_t i = 0; i < q["seq"]; ++i) {
    seen += static_cast<double>(std::min(i + 1, window));
  }
  // Two products forward, five backward.
  call.flops = 7 * 2 * seen * static_cast<double>(q["batch"] * q["hidden"]);
  return call;
}

/// Products of one input: queries, keys and values, or gate and up.
Call linears(const Question& q) {
  const Tensor x = leaf(q, {q["batch"], q["seq"], q["hidden"]});
  const bool gated = q.name == "gate_up";
  Tensors leaves = {x};
  std::vector<ops::LinearParameters> layers;
  for (int i = 0; i < (gated ? 2 : 3); ++i) {
    leaves.push_back(leaf(q, {gated ? q["inner"] : q["hidden"], q["hidden"]}));
    layers.push_back({.weight = leaves.back()});
  }
  Call call = call_of(leaves, [=] { return ops::linears(x, layers); });
  call.flops = 6.0 * static_cast<double>(q.tokens()) *
               (numel_of(leaves) - numel_of({x}));
  return call;
}

const std::map<std::string, Call (*)(const Question&)> kOperators = {
    {"rms_norm", norm},
    {"layer_norm", norm},
    {"rope", rope},
    {"swiglu", activation},
    {"gelu_bias", activation},
    {"gelu_tanh", activation},
    {"cross_entropy", cross_entropy},
    {"linear_cross_entropy", cross_entropy},
    {"embedding", embedding},
    {"attention", attention},
    {"qkv", linears},
    {"gate_up", linears},
};

/// Milliseconds a call, over as many calls as fill a sample.
double sample_ms(const std::function<void()>& body) {
  body();
  const double once = std::max(1e-4, processor_ms(body));
  const int calls = std::max(1, static_cast<int>(kSampleMs / once));
  return processor_ms([&] {
           for (int i = 0; i < calls; ++i) {
             body();
           }
         }) /
         calls;
}

double limit_ms(const Call& call, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (call.flops > 0) {
    constexpr int64_t kSize = 1024;
    const Tensor a = at::randn({kSize, kSize}).to(dtype);
    const Tensor b = at::randn({kSize, kSize}).to(dtype);
    Tensor c = at::empty({kSize, kSize}, a.options());
    const double ms = sample_ms([&] { at::mm_out(c, a, b); });
    return call.flops / (2.0 * kSize * kSize * kSize) * ms;
  }
  const auto bytes = static_cast<std::size_t>(
      call.elements_moved * static_cast<double>(c10::elementSize(dtype)) / 2);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  return sample_ms([&] { std::memcpy(to.data(), from.data(), bytes); });
}

Question question_from(const std::string& line) {
  std::istringstream words(line);
  Question question;
  std::string word;
  words >> question.name >> word;
  question.dtype = word == "bf16" ? at::kBFloat16 : at::kFloat;
  while (words >> word) {
    const auto equals = word.find('=');
    question.sizes[word.substr(0, equals)] =
        std::stoll(word.substr(equals + 1));
  }
  return question;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  std::map<std::string, Call> calls;  // made once each
  for (std::string line; std::getline(std::cin, line);) {
    const Question question = question_from(line);
    if (!calls.contains(line)) {
      calls.clear();
      calls[line] = kOperators.at(question.name)(question);
    }
    const Call& call = calls.at(line);
    std::cout << sample_ms(call.body) << ' ' << limit_ms(call, question.dtype)
              << std::endl;  // flushed: the other side waits for it
  }
}
