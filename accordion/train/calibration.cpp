// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/plan/layer_operators.h"
#include "accordion/plan/operator_time.h"
#include "accordion/plan/plan.h"
#include "accordion/train/collective_rates.h"
#include "accordion/train/machine_rates.h"
#include "accordion/train/operator_rates.h"
#include "accordion/train/plan_request.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_setup.h"

namespace accordion {
namespace {

using plan::ComputeType;
using plan::MeasuredKind;
using plan::MeasuredRate;

constexpr std::array kTypes = {ComputeType::Fp32, ComputeType::Bf16};

/// Tokens, and the sides of a weight.
struct ProductSize {
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t columns;
};
constexpr std::array<std::array<std::int64_t, 2>, 10> kWeights = {
    {{128, 128},
     {128, 344},
     {256, 256},
     {256, 688},
     {512, 512},
     {512, 1376},
     {1024, 1024},
     {1024, 2752},
     {2048, 2048},
     {512, 8192}}};
constexpr std::array<std::int64_t, 3> kRows = {256, 1024, 4096};
std::vector<ProductSize> product_sizes(double most_flops) {
  std::vector<ProductSize> sizes;
  for (const auto& [inner, columns] : kWeights) {
    for (const std::int64_t rows : kRows) {
      if (6.0 * static_cast<double>(rows * inner * columns) <= most_flops) {
        sizes.push_back({rows, inner, columns});
      }
    }
  }
  return sizes;
}

struct AttentionSize {
  std::int64_t seq_len;
  std::int64_t head_dim;
};
constexpr std::array<AttentionSize, 8> kAttentions = {{{64, 64},
                                                       {128, 32},
                                                       {128, 64},
                                                       {256, 64},
                                                       {256, 128},
                                                       {512, 64},
                                                       {512, 128},
                                                       {1024, 64}}};

/// Batch and sequence, and a width with heads of 64 and a feed-forward of 2.7
/// times the width.
struct LayerSize {
  std::int64_t batch;
  std::int64_t seq_len;
  std::int64_t width;
};
constexpr std::array<LayerSize, 7> kLayers = {{{4, 128, 128},
                                               {4, 256, 256},
                                               {1, 256, 512},
                                               {4, 256, 512},
                                               {2, 128, 1024},
                                               {4, 256, 1024},
                                               {2, 256, 2048}}};

/// Of forward and backward of its products.
double product_flops(const LayerSize& size) {
  constexpr double kMatrices = 4.0 + 3.0 * 43 / 16;
  return 6.0 * kMatrices * static_cast<double>(size.batch * size.seq_len) *
         static_cast<double>(size.width * size.width);
}

/// What the planner counts for a step of AdamW in fp32, a parameter: reading a
/// gradient for its norm and scaling it, and one pass over all.
constexpr double kOptimizerBytes = 5.0 * 4.0 + 2.0 * 4.0 + 2.0 * 8.0;

LlamaConfig layer_config(const LayerSize& size) {
  LlamaConfig config;
  config.hidden_size = size.width;
  config.intermediate_size = size.width * 43 / 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = std::max<std::int64_t>(1, size.width / 64);
  config.num_key_value_heads = config.num_attention_heads;
  config.head_dim = size.width / config.num_attention_heads;
  config.vocab_size = 256;
  config.max_position_embeddings = size.seq_len;
  return config;
}

class Calibration {
 public:
  Calibration(Communicator& world, const CalibrationOptions& options,
              plan::Cluster& cluster)
      : world_(world),
        options_(options),
        timer_(options.seconds_each),
        cluster_(cluster) {}

  void run() {
    // Twice, some seconds apart: what disturbs one measurement only slows it.
    for (int round = 0; round < 2; ++round) {
      for (const ComputeType type : kTypes) {
        measure_products(type);
        measure_attention(type);
      }
    }
    for (const ComputeType type : kTypes) {
      measure_layers(type);
    }
    measure_optimizer();
  }

 private:
  /// Mean over ranks: the same on all of them.
  double agreed(double seconds) {
    return sum_over_ranks(world_, std::vector{seconds}, "calibration")[0] /
           world_.world_size();
  }

  /// Keeps the faster of two measurements of one thing.
  void add(MeasuredKind kind, ComputeType type, std::array<double, 3> sizes,
           double work, double seconds) {
    for (MeasuredRate& rate : cluster_.gpu.measured) {
      if (rate.kind == kind && rate.compute == type && rate.sizes == sizes) {
        rate.per_s = std::max(rate.per_s, work / seconds);
        return;
      }
    }
    cluster_.gpu.measured.push_back({.kind = kind,
                                     .compute = type,
                                     .sizes = sizes,
                                     .per_s = work / seconds});
  }

  void measure_products(ComputeType type) {
    for (const auto& [rows, inner, columns] :
         product_sizes(options_.most_flops)) {
      const std::array sizes = {static_cast<double>(rows),
                                static_cast<double>(inner),
                                static_cast<double>(columns)};
      add(MeasuredKind::Product, type, sizes,
          6.0 * sizes[0] * sizes[1] * sizes[2],
          agreed(timer_.linear(rows, inner, columns, scalar_type(type))));
    }
  }

  void measure_attention(ComputeType type) {
    for (const auto& [seq_len, head_dim] : kAttentions) {
      // As many heads as make a million elements of a query.
      const std::int64_t heads =
          std::max<std::int64_t>(1, 4096 / (seq_len * head_dim / 256));
      const double scores = static_cast<double>(heads * seq_len) *
                            (static_cast<double>(seq_len) + 128.0) / 2.0;
      const double flops = 3.5 * 4.0 * scores * static_cast<double>(head_dim);
      add(MeasuredKind::Attention, type,
          {static_cast<double>(seq_len), static_cast<double>(head_dim), 1.0},
          flops,
          agreed(
              timer_.attention(seq_len, heads, head_dim, scalar_type(type))));
    }
  }

  /// What a layer takes beyond products and attention.
  void measure_layers(ComputeType type) {
    std::vector<MeasuredRate> rates;
    for (const LayerSize& size : kLayers) {
      if (product_flops(size) > options_.most_flops) {
        continue;
      }
      const LlamaConfig config = layer_config(size);
      const auto once = [&] {
        return agreed(
            timer_.layer(config, size.batch, size.seq_len, scalar_type(type)));
      };
      const double seconds = std::min(once(), once());
      rates.push_back(elementwise_rate(config, size, type, seconds));
    }
    cluster_.gpu.measured.insert(cluster_.gpu.measured.end(), rates.begin(),
                                 rates.end());
  }

  [[nodiscard]] MeasuredRate elementwise_rate(const LlamaConfig& config,
                                              const LayerSize& size,
                                              ComputeType type,
                                              double seconds) const {
    plan::PlanRequest request;
    request.model = model_shape(config);
    request.cluster = cluster_;
    request.stack = plan::find_stack("accordion");
    request.training.seq_len = size.seq_len;
    request.training.micro_batch = size.batch;
    request.training.precision.compute = type;
    const plan::OperatorMachine machine{cluster_.gpu, request.stack, type};
    const plan::OperatorLists lists = plan::layer_operators(request);
    double known = 0.0;
    double bytes = 0.0;
    double logs = 0.0;
    int count = 0;
    for (const auto* list : {&lists.forward, &lists.backward}) {
      for (const plan::Operator& op : *list) {
        if (op.kind == plan::OperatorKind::Elementwise) {
          bytes += op.bytes;
          logs += std::log(op.bytes);
          ++count;
        } else {
          known += plan::operator_time(op, machine);
        }
      }
    }
    // Noise must not make it free, or negative.
    const double rest = std::max(seconds - known, 0.05 * seconds);
    return {.kind = MeasuredKind::Elementwise,
            .compute = type,
            .sizes = {std::exp(logs / count), 1.0, 1.0},
            .per_s = bytes / rest};
  }

  void measure_optimizer() {
    for (const std::int64_t numel : {1LL << 16, 1LL << 20, 1LL << 24}) {
      const auto params = static_cast<double>(numel);
      add(MeasuredKind::Optimizer, ComputeType::Fp32, {params, 1.0, 1.0},
          params * kOptimizerBytes, agreed(timer_.adamw(numel)));
    }
  }

  Communicator& world_;
  const CalibrationOptions& options_;
  OperatorTimer timer_;
  plan::Cluster& cluster_;
};

double host_memory_bytes() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// A rank of this host, as cluster_from_toml has it before the file's rates.
plan::Cluster host_cluster(const Rendezvous& rendezvous) {
  constexpr double kUnmeasured = 1.0;
  const auto text = fmt::format(
      "gpu = \"CPU\"\ngpus_per_host = {}\n[gpu_rates]\npeak_16bit_flops = {}\n"
      "peak_32bit_flops = {}\nmemory_bytes = {}\nmemory_bytes_per_s = {}\n"
      "[inside_rates]\nbytes_per_s = {}\n",
      rendezvous.world_size, kUnmeasured, kUnmeasured,
      host_memory_bytes() / rendezvous.local_world_size, kUnmeasured,
      kUnmeasured);
  return plan::cluster_from_toml(text, "calibrate");
}

}  // namespace

plan::Cluster calibrate(const Rendezvous& rendezvous,
                        const CalibrationOptions& options) {
  const DeviceMesh mesh = DeviceMesh::connect(rendezvous, {.backend = "shm"});
  Communicator& world = mesh.world();
  at::set_num_threads(own_cores(world, rendezvous));
  plan::Cluster cluster = host_cluster(rendezvous);
  const double ranks = world.world_size();
  const MachineRates fp32 = measure_machine(world, at::kFloat);
  const MachineRates bf16 = measure_machine(world, at::kBFloat16);
  cluster.gpu.peak_32bit_flops = fp32.matmul_flops / ranks;
  cluster.gpu.peak_16bit_flops = bf16.matmul_flops / ranks;
  cluster.gpu.memory_bytes_per_s = fp32.memory_bytes / ranks;
  Calibration(world, options, cluster).run();
  cluster.inside = measure_link(world, cluster.inside);
  if (world.world_size() > 1) {
    const DeviceMesh gloo =
        DeviceMesh::connect(rendezvous, {.backend = "gloo"});
    cluster.between = measure_link(gloo.world(), cluster.between);
  }
  return cluster;
}

}  // namespace accordion
