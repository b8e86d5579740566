// SPDX-License-Identifier: BSD-3-Clause
// What a rank allocates while fully_shard gives a module on meta its values. A
// program of its own, as it replaces LibTorch's allocator.
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/materialize.h"
#include "accordion/module/meta_init.h"

namespace accordion {
namespace {

constexpr int kRanks = 4;
constexpr int kBlocks = 16;
constexpr std::int64_t kWidth = 128;

/// Bytes of all tensors on the CPU that are alive, and their peak.
class Ledger {
 public:
  void add(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[data] = static_cast<std::int64_t>(bytes);
    alive_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, alive_);
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex_);
    alive_ -= sizes_.at(data);
    sizes_.erase(data);
  }
  /// The most that was alive at once during `work`, less what was before.
  template <class Work>
  std::int64_t peak_during(Work&& work) {
    const std::int64_t before = alive_;
    peak_ = alive_;
    work();
    return peak_ - before;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::int64_t> sizes_;
  std::int64_t alive_ = 0;
  std::int64_t peak_ = 0;
};

Ledger& ledger() {
  static Ledger instance;
  return instance;
}

/// LibTorch's own memory, entered in the ledger.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) {
      ledger().add(data, bytes);
    }
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* data) {
    if (data != nullptr) {
      ledger().remove(data);
      c10::free_cpu(data);
    }
  }
};

class MaterializeMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/1);
  }
};

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    up = register_module("up", torch::nn::Linear(kWidth, 2 * kWidth));
    down = register_module("down", torch::nn::Linear(2 * kWidth, kWidth));
  }
  torch::Tensor forward(torch::Tensor x) { return down(up(x)); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

/// Equal units, and a root that holds nothing besides.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), Unit<Block>()));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) {
      x = block(x);
    }
    return x;
  }
  std::vector<Unit<Block>> blocks;
};
TORCH_MODULE(Stack);

Unit<Stack> stack_on_meta(torch::Dtype dtype = torch::kFloat) {
  const MetaInit meta;
  Unit<Stack> net;
  net->to(dtype);
  return net;
}

std::int64_t bytes_of(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) {
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return bytes;
}

/// Shards over four ranks, of which this is one.
void shard(Unit<Stack>& net, const FsdpOptions& options = {}) {
  fully_shard(net, DeviceMesh::over(make_fake_communicator(1, kRanks)),
              options);
}

/// What stays: shards of parameters and their gradients.
std::int64_t bytes_at_rest(Unit<Stack>& net) {
  const ShardedBytes bytes = sharded_bytes(*net);
  return bytes.parameters + bytes.gradients + bytes.whole_copies;
}

TEST_F(MaterializeMemory, OfValuesByRuleIsTheShards) {
  Unit<Stack> net = stack_on_meta();
  const std::int64_t peak = ledger().peak_during([&] { shard(net); });
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_EQ(peak, bytes_at_rest(net));
}

TEST_F(MaterializeMemory, OfOtherDtypesIsTheShardsAndLessThanAUnit) {
  Unit<Stack> net = stack_on_meta(torch::kBFloat16);
  const std::int64_t unit = bytes_of(*net->blocks[0]);
  const std::int64_t peak = ledger().peak_during([&] { shard(net); });
  EXPECT_LT(peak, bytes_at_rest(net) + unit);
}

TEST_F(MaterializeMemory, OfValuesMadeWholeIsTheShardsAndOneParameter) {
  Unit<Stack> net = stack_on_meta();
  const auto parameter =
      static_cast<std::int64_t>(net->blocks[0]->up->weight.nbytes());
  const WholeInit make = [](const at::Tensor& whole, at::Generator generator) {
    whole.normal_(0, 1, generator);
  };
  const std::int64_t peak = ledger().peak_during([&] {
    shard(net, {.init = {.initial_value = [&](const auto&, const auto&) {
                  return std::optional<InitialValue>(make);
                }}});
  });
  EXPECT_LE(peak, bytes_at_rest(net) + parameter);
}

// What the others would find if fully_shard gave the whole module its values.
TEST_F(MaterializeMemory, OfAWholeModuleIsSeen) {
  Unit<Stack> net = stack_on_meta();
  const std::int64_t whole = bytes_of(*net);
  const std::int64_t unit = bytes_of(*net->blocks[0]);
  const std::int64_t peak = ledger().peak_during([&] {
    materialize(net);
    shard(net);
  });
  EXPECT_GE(peak, whole);
  EXPECT_GT(peak, bytes_at_rest(net) + unit);
}

}  // namespace
}  // namespace accordion
