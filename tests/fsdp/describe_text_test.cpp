// SPDX-License-Identifier: BSD-3-Clause
#include <torch/nn/modules/linear.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/fsdp/describe.h"
#include "accordion/fsdp/fully_shard.h"
#include "tests/fsdp/expect_in.h"

namespace accordion {
namespace {

using testing::expect_in;

struct PartImpl : torch::nn::Module {
  PartImpl() {
    up = register_module("up", torch::nn::Linear(4, 8));
    down = register_module("down", torch::nn::Linear(8, 4));
    up->weight.set_requires_grad(false);
  }
  torch::Tensor forward(torch::Tensor x) { return down(up(x)); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Part);

/// A tie, a scalar that is replicated, a row that is ignored.
struct SmallImpl : torch::nn::Module {
  SmallImpl() {
    part = register_module("part", Unit<Part>());
    first = register_parameter("first", torch::zeros({10, 5}));
    second = register_parameter("second", first);
    scale = register_parameter("scale", torch::ones({}));
    row = register_parameter("row", torch::ones({1, 4}));
  }
  torch::Tensor forward(torch::Tensor x) {
    return part(x + row) * (scale * first.sum() + second.sum());
  }
  Unit<Part> part{nullptr};
  torch::Tensor first, second, scale, row;
};
TORCH_MODULE(Small);

// By hand: an element of a shard has 4 bytes and one that is gathered 2; a
// parameter starts on 64 bytes, so 16 elements, and so does a rank's range.
constexpr const char* kSmallText =
    R"(full_shard over shard 2, as rank 1 holds it
prefetch 1, parameters BFloat16

unit (root): 51 elements, shard 132 B, gathered 128 B, gradients 192 B, kept from forward to backward
  section fp32 as bf16, trainable, sharded: 50 elements, 32 a rank, padding 14
    first                            [10, 5]            elements 32-49               72 B
      tied to it: second
  section fp32 as bf16, trainable, replicated: 1 elements, 1 a rank, padding 0
    scale                            []                 all                           4 B

unit part: 76 elements, shard 192 B, gathered 192 B, gradients 128 B
  section fp32 as bf16, frozen, sharded: 32 elements, 16 a rank, padding 0
    part.up.weight                   [8, 4]             rows 4-7                     64 B
  section fp32 as bf16, trainable, sharded: 44 elements, 32 a rank, padding 20
    part.up.bias                     [8]                none                          0 B
    part.down.weight                 [4, 8]             rows 2-3                     64 B
    part.down.bias                   [4]                all                          16 B

ignored row [1, 4], 16 B
total of this rank: parameters 324 B, gradients 260 B, whole copies 2 B, slots for parameters 320 B and for gradients 320 B
warning: 1 unit gathers less than 256 KiB: 'part'. Latency decides there, not bytes: merge them into the units around with FsdpOptions::wrap = wrap_min_numel(…).
warning: frozen and trainable parameters mix within unit 'part': each kind is a section, cut and padded by itself. Expected of adapters; else freeze units as a whole.
)";

TEST(DescribeText, SaysEverythingOfASmallNet) {
  Unit<Small> net;
  fully_shard(net, DeviceMesh::over(make_fake_communicator(1, 2)),
              {.precision = {.param_dtype = torch::kBFloat16},
               .placement = [](const ParameterInfo& parameter) {
                 return parameter.name == "row" ? ParameterPlacement::Ignore
                        : parameter.name == "scale"
                            ? ParameterPlacement::Replicate
                            : ParameterPlacement::Shard;
               }});
  EXPECT_EQ(to_text(describe(net)), kSmallText);
}

/// The text of a parameter [6, 4] of which a rank has [begin, end).
std::string text_of_piece(std::int64_t begin, std::int64_t end) {
  ModuleDescription net;
  UnitDescription unit{.name = "unit"};
  unit.parameters.push_back(
      {.names = {"weight"},
       .shape = {6, 4},
       .piece = {
           .begin = begin, .end = end, .shard_offset = 0, .local_shape = {}}});
  unit.sections.push_back({.stored_dtype = DType::Float32,
                           .gathered_dtype = DType::Float32,
                           .requires_grad = true,
                           .placement = Placement::Shard,
                           .parameters = {0},
                           .offsets = {0},
                           .numel = 24,
                           .numel_per_rank = 16,
                           .padded_numel = 48});
  net.units.push_back(unit);
  return to_text(net);
}

TEST(DescribeText, SaysRowsWhereAPieceConsistsOfThemElseElements) {
  expect_in(text_of_piece(8, 16), " rows 2-3 ");
  expect_in(text_of_piece(8, 15), " elements 8-14 ");
  expect_in(text_of_piece(7, 16), " elements 7-15 ");
  expect_in(text_of_piece(0, 24), " all ");
  expect_in(text_of_piece(3, 3), " none ");
}

TEST(DescribeText, SaysWhatTradesMemory) {
  Unit<Small> net;
  fully_shard(net, DeviceMesh::over(make_fake_communicator(1, 2)),
              {.step_in_backward = true,
               .activation_checkpointing = ActivationCheckpointing()});
  const std::string text = to_text(describe(net));
  expect_in(text, "prefetch 1, steps in backward\n");
  expect_in(text, "gradients 256 B, activations recomputed\n");
}

TEST(DescribeText, SaysWhatIsOffloaded) {
  HostPool pool(1 << 20);
  Unit<Small> net;
  fully_shard(net, DeviceMesh::over(make_fake_communicator(1, 2)),
              {.offload = OffloadPolicy{.to = offload_to_host(pool),
                                        .parameters = true},
               .activation_checkpointing =
                   ActivationCheckpointing{.offload = offload_to_host(pool)}});
  expect_in(to_text(describe(net)),
            "prefetch 1, gradients offloaded, parameters offloaded, "
            "activations offloaded\n");
}

}  // namespace
}  // namespace accordion
