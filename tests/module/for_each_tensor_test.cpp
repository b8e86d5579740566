// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/for_each_tensor.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace {

struct Output {
  torch::Tensor logits;
  int step = 0;
  std::vector<torch::Tensor> states;
};

}  // namespace

template <>
struct accordion::TensorTraversal<Output> {
  static constexpr bool has_tensors = true;
  template <class F>
  static void visit(Output& output, F&& f) {
    accordion::for_each_tensor(output.logits, f);
    accordion::for_each_tensor(output.states, f);
  }
};

namespace accordion {
namespace {

template <class T>
int count(T value) {
  int found = 0;
  for_each_tensor(value, [&found](at::Tensor&) { ++found; });
  return found;
}

TEST(ForEachTensor, FindsTensorsInNestedContainers) {
  const auto t = torch::zeros({2});
  EXPECT_EQ(count(t), 1);
  EXPECT_EQ(count(std::vector<torch::Tensor>{t, t, t}), 3);
  EXPECT_EQ(count(std::make_tuple(t, 3, std::make_pair(t, std::string("x")))),
            2);
  EXPECT_EQ(count(std::map<std::string, std::vector<torch::Tensor>>{
                {"a", {t, t}}, {"b", {t}}}),
            3);
  EXPECT_EQ(count(std::optional<torch::Tensor>{}), 0);
  EXPECT_EQ(count(std::variant<int, torch::Tensor>{t}), 1);
}

TEST(ForEachTensor, SkipsUndefinedTensors) {
  EXPECT_EQ(
      count(std::vector<torch::Tensor>{torch::Tensor(), torch::ones({1})}), 1);
}

TEST(ForEachTensor, VisitsATypeThatTheUserDescribes) {
  EXPECT_EQ(count(Output{torch::ones({1}), 1, {torch::ones({1})}}), 2);
  static_assert(has_tensors<const Output&>);
  static_assert(!has_tensors<int>);
}

TEST(ForEachTensor, LetsTheVisitorReplaceATensor) {
  std::tuple<torch::Tensor, int> value{torch::zeros({1}), 1};
  for_each_tensor(value, [](at::Tensor& t) { t = t + 1; });
  EXPECT_EQ(std::get<0>(value).item<float>(), 1.0F);
}

}  // namespace
}  // namespace accordion
