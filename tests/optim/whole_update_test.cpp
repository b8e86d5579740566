// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/whole_update.h"

#include "accordion/fsdp/fully_shard.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;
using Net = Unit<testing::UnitNet>;

std::vector<LocalParameter> matrices(const torch::nn::Module& net) {
  auto all = local_parameters(net);
  std::erase_if(all, [](const LocalParameter& parameter) {
    return parameter.global_shape.size() != 2;
  });
  return all;
}

/// A value that tells parameter and element: i + j / 1000.
torch::Tensor encoded(std::size_t i, std::int64_t begin, std::int64_t end) {
  return static_cast<double>(i) + torch::arange(begin, end) / 1000.0;
}

TEST(UpdateWhole, OwnersSeeWholeMatricesAndEveryRankGetsItsPiece) {
  for (const int world : {1, 2, 3}) {
    std::vector<int> owner_of(7, -1);
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto net = seeded<Net>();
      fully_shard(net, mesh);
      const auto parameters = matrices(*net);
      ASSERT_EQ(parameters.size(), owner_of.size());
      std::vector<torch::Tensor> values;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        values.push_back(encoded(i, parameters[i].begin, parameters[i].end));
      }
      const auto before = shard_communicator(*net).counters();
      update_whole(*net, parameters, values,
                   [&](std::size_t i, const torch::Tensor& whole) {
                     owner_of[i] = mesh.rank();
                     EXPECT_EQ(whole.sizes(), parameters[i].global_shape);
                     EXPECT_TRUE(torch::equal(whole.reshape({-1}),
                                              encoded(i, 0, whole.numel())));
                     return whole * 2;
                   });
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(torch::equal(
            values[i], 2 * encoded(i, parameters[i].begin, parameters[i].end)))
            << parameters[i].name << ", " << world << " ranks";
      }
      const auto& after = shard_communicator(*net).counters();
      const int rounds = (7 + world - 1) / world;
      for (const CommOp op : {CommOp::ReduceScatter, CommOp::AllGather}) {
        EXPECT_EQ(after.calls_of(op) - before.calls_of(op), rounds);
      }
    });
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(owner_of[static_cast<std::size_t>(i)], i % world);
    }
  }
}

TEST(UpdateWhole, RejectsValuesAndResultsOfOtherShapes) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    const auto parameters = matrices(*net);
    const auto message = [&](std::vector<torch::Tensor> values, auto update) {
      return testing::message_of<c10::ValueError>(
          [&] { update_whole(*net, parameters, values, update); });
    };
    const auto same = [](std::size_t, const torch::Tensor& whole) {
      return whole;
    };
    std::vector<torch::Tensor> values;
    EXPECT_NE(message(values, same).find("0 values for 7 parameters"),
              std::string::npos);
    for (const auto& parameter : parameters) {
      values.push_back(torch::zeros({parameter.end - parameter.begin}));
    }
    EXPECT_NE(
        message(values, [](std::size_t,
                           const torch::Tensor& whole) { return whole.t(); })
            .find("returned [7, 3]; expected its global shape [3, 7]"),
        std::string::npos);
    values[1] = torch::zeros({2});
    EXPECT_NE(message(values, same)
                  .find("value for parameter 'block0.up.weight' is [2]"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace accordion
