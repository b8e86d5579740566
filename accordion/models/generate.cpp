// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include "accordion/module/philox.h"

namespace accordion {
namespace {

void check(const std::vector<int64_t>& prompt, const SamplingOptions& options) {
  TORCH_CHECK_VALUE(!prompt.empty(),
                    "[generate] the prompt is empty: give at least one token.");
  TORCH_CHECK_VALUE(options.num_tokens >= 0 && options.temperature >= 0 &&
                        options.top_k >= 0 && options.max_context > 0,
                    "[generate] num_tokens is ", options.num_tokens,
                    ", temperature ", options.temperature, ", top_k ",
                    options.top_k, ", max_context ", options.max_context,
                    ": none may be negative, and max_context not 0.");
}

/// Logits after the last of `tokens`.
std::vector<float> last_logits(const LogitsFunction& logits,
                               const std::vector<int64_t>& tokens,
                               int64_t max_context) {
  const auto context =
      std::min<int64_t>(static_cast<int64_t>(tokens.size()), max_context);
  const at::ArrayRef<int64_t> seen(
      tokens.data() + tokens.size() - static_cast<size_t>(context),
      static_cast<size_t>(context));
  const at::Tensor row = logits(at::tensor(seen, at::kLong).unsqueeze(0))
                             .select(1, -1)
                             .flatten()
                             .to(at::kCPU, at::kFloat)
                             .contiguous();
  return {row.const_data_ptr<float>(),
          row.const_data_ptr<float>() + row.numel()};
}

/// Draws an index in proportion to exp(logit / temperature).
int64_t draw(const std::vector<float>& logits, const SamplingOptions& options,
             double unit) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties by index, so that all ranks agree.
  std::ranges::sort(order, [&logits](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> cumulative;
  double sum = 0;
  for (const int64_t token : order) {
    sum += std::exp((logits[token] - logits[order[0]]) / options.temperature);
    cumulative.push_back(sum);
  }
  const auto found = std::ranges::lower_bound(cumulative, unit * sum);
  const auto position = std::min<size_t>(
      static_cast<size_t>(found - cumulative.begin()), order.size() - 1);
  return order[position];
}

}  // namespace

std::vector<int64_t> generate(const LogitsFunction& logits,
                              std::vector<int64_t> prompt,
                              const SamplingOptions& options) {
  check(prompt, options);
  const at::NoGradGuard no_grad;
  const Philox random(options.seed);
  for (int64_t step = 0; step < options.num_tokens; ++step) {
    const std::vector<float> row =
        last_logits(logits, prompt, options.max_context);
    const auto counter = static_cast<uint64_t>(step);
    prompt.push_back(
        options.temperature == 0
            ? std::ranges::max_element(row) - row.begin()
            : draw(row, options, to_unit(random.block(counter)[0])));
  }
  return prompt;
}

}  // namespace accordion
