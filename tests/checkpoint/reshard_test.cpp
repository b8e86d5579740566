// SPDX-License-Identifier: BSD-3-Clause
// What any number of ranks saved, with any strategy, mesh and units, any other
// loads: parameters, moments and steps, bit for bit.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/support/temporary_folder.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;

constexpr int kRows = 48;

struct Setting {
  std::string name;
  std::vector<MeshAxis> axes;
  FsdpOptions options = {};
  bool one_unit = false;  // the whole net, instead of a unit a block

  [[nodiscard]] std::size_t num_ranks() const {
    std::size_t ranks = 1;
    for (const MeshAxis& axis : axes) {
      ranks *= static_cast<std::size_t>(axis.size);
    }
    return ranks;
  }
};

std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const int world : {1, 2, 3, 4, 8}) {
    result.push_back({"full_" + std::to_string(world), {{"shard", world}}});
  }
  result.push_back({"one_unit_3", {{"shard", 3}}, {}, true});
  result.push_back(
      {"shard_grad_op_2", {{"shard", 2}}, {.strategy = Strategy::ShardGradOp}});
  result.push_back({"shard_optimizer_4",
                    {{"shard", 4}},
                    {.strategy = Strategy::ShardOptimizer}});
  result.push_back(
      {"no_shard_3", {{"shard", 3}}, {.strategy = Strategy::NoShard}});
  result.push_back({"small_whole_3", {{"shard", 3}}, {.min_shard_numel = 50}});
  result.push_back({"hybrid_2x2", {{"replicate", 2}, {"shard", 2}}});
  result.push_back({"hybrid_3x2_whole",
                    {{"replicate", 3}, {"shard", 2}},
                    {.min_shard_numel = 50},
                    true});
  result.push_back({"hpz_4_to_2", {{"shard", 4}}, {.reshard_to_ranks = 2}});
  return result;
}

template <class Net>
void train_classes(const DeviceMesh& mesh, Unit<Net>& net, AdamW& optimizer,
                   int first, int last) {
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    const auto mine = [&](const torch::Tensor& batch) {
      return rows_of(batch, mesh.rank(), mesh.world_size());
    };
    class_loss(net(mine(tokens_of(step, kRows))), mine(classes_of(step, kRows)))
        .backward();
    clip_grad_norm_(net, 0.2);
    optimizer.step();
  }
}

/// Runs `body` with a fresh net on the ranks of a setting.
template <class Net, class Body>
void with_nets_on(const Setting& setting, const Body& body) {
  std::vector<Unit<Net>> nets;
  for (std::size_t rank = 0; rank < setting.num_ranks(); ++rank) {
    nets.push_back(seeded<Unit<Net>>());
  }
  testing::on_meshes(make_local_meshes(setting.axes, std::chrono::seconds(30)),
                     [&](const DeviceMesh& mesh) {
                       auto& net = nets[static_cast<std::size_t>(mesh.rank())];
                       fully_shard(net, mesh, setting.options);
                       AdamW optimizer(net, {.lr = 1e-2, .weight_decay = 0});
                       body(mesh, net, optimizer);
                     });
}

template <class Body>
void on_setting(const Setting& setting, const Body& body) {
  if (setting.one_unit) {
    with_nets_on<testing::PlainOddNet>(setting, body);
  } else {
    with_nets_on<testing::UnitOddNet>(setting, body);
  }
}

/// What a checkpoint holds, whole.
std::map<std::string, std::vector<float>> content_of(
    const std::filesystem::path& path) {
  CheckpointReader reader(path);
  std::map<std::string, std::vector<float>> content;
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (tensor.dtype == "F32") {
      auto& values = content[name];
      values.resize(static_cast<std::size_t>(tensor.numel()));
      reader.read(name, 0, std::as_writable_bytes(std::span(values)));
    }
  }
  return content;
}

std::vector<float> values_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<float>(),
          flat.const_data_ptr<float>() + flat.numel()};
}

/// Saves after three steps of training; the whole parameters, as a collective
/// gathers them, must be what the files hold.
void save_from(const Setting& setting, const std::filesystem::path& path) {
  std::map<std::string, std::vector<float>> gathered;
  on_setting(setting, [&](const DeviceMesh& mesh, auto& net, AdamW& optimizer) {
    train_classes(mesh, net, optimizer, 0, 3);
    save_checkpoint(net, optimizer, path, {{"note", std::string("three")}});
    for (const LocalParameter& local : local_parameters(*net)) {
      const auto whole = full_parameter(*net, local.name);
      if (mesh.rank() == 0) {
        gathered.emplace("model/" + local.name, values_of(whole));
      }
    }
  });
  const auto content = content_of(path);
  for (const auto& [name, values] : gathered) {
    ASSERT_TRUE(content.contains(name)) << name;
    EXPECT_EQ(content.at(name), values) << name;
  }
}

void expect_piece(const std::vector<float>& whole, const LocalParameter& local,
                  const torch::Tensor& piece, const std::string& name) {
  const auto values = values_of(piece);
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), local.end - local.begin)
      << name;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], whole[static_cast<std::size_t>(local.begin) + i])
        << name << ", element " << local.begin << " + " << i;
  }
}

void load_into(const Setting& setting, const std::filesystem::path& path) {
  const auto content = content_of(path);
  on_setting(setting, [&](const DeviceMesh& mesh, auto& net, AdamW& optimizer) {
    // Other values than those saved, and other moments.
    train_classes(mesh, net, optimizer, 7, 9);
    const LoadResult result = load_checkpoint(net, optimizer, path);
    EXPECT_EQ(std::get<std::string>(result.values.at("note")), "three");
    EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
    for (const LocalParameter& local : local_parameters(*net)) {
      expect_piece(content.at("model/" + local.name), local, local.piece,
                   local.name);
      const auto moments = optimizer.moments(local.name);
      if (!moments || !content.contains("optimizer/exp_avg/" + local.name)) {
        continue;
      }
      EXPECT_EQ(moments->steps, 3) << local.name;
      expect_piece(content.at("optimizer/exp_avg/" + local.name), local,
                   moments->first, local.name + " exp_avg");
      expect_piece(content.at("optimizer/exp_avg_sq/" + local.name), local,
                   moments->second, local.name + " exp_avg_sq");
    }
  });
}

class Reshard : public ::testing::TestWithParam<Setting> {};

TEST_P(Reshard, LoadsIntoEverySetting) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "checkpoint";
  save_from(GetParam(), path);
  for (const Setting& target : settings()) {
    SCOPED_TRACE("into " + target.name);
    load_into(target, path);
  }
}

TEST_P(Reshard, TheRunGoesOnAsIfUnbroken) {
  const Setting& setting = GetParam();
  const testing::TemporaryFolder folder;
  on_setting(setting, [&](const DeviceMesh& mesh, auto& net, AdamW& optimizer) {
    train_classes(mesh, net, optimizer, 0, 3);
    save_checkpoint(net, optimizer, folder.path() / "three");
    train_classes(mesh, net, optimizer, 3, 6);
    save_checkpoint(net, optimizer, folder.path() / "unbroken");
  });
  on_setting(setting, [&](const DeviceMesh& mesh, auto& net, AdamW& optimizer) {
    load_checkpoint(net, optimizer, folder.path() / "three");
    train_classes(mesh, net, optimizer, 3, 5);
    save_checkpoint(net, optimizer, folder.path() / "five");
  });
  on_setting(setting, [&](const DeviceMesh& mesh, auto& net, AdamW& optimizer) {
    load_checkpoint(net, optimizer, folder.path() / "five");
    train_classes(mesh, net, optimizer, 5, 6);
    save_checkpoint(net, optimizer, folder.path() / "resumed");
  });
  const auto unbroken = content_of(folder.path() / "unbroken");
  const auto resumed = content_of(folder.path() / "resumed");
  ASSERT_EQ(unbroken.size(), resumed.size());
  for (const auto& [name, values] : unbroken) {
    EXPECT_EQ(resumed.at(name), values) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Reshard, ::testing::ValuesIn(settings()),
                         [](const ::testing::TestParamInfo<Setting>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace accordion
