// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/plan/plan.h"
#include "accordion/train/calibration_sizes.h"
#include "accordion/train/collective_rates.h"
#include "accordion/train/config_options.h"
#include "accordion/train/machine_rates.h"
#include "accordion/train/operator_rates.h"
#include "accordion/train/plan_request.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_setup.h"
#include "accordion/train/step_rates.h"

namespace accordion {
namespace {

using calibration::kAttentions;
using calibration::kModels;
using calibration::kOffloaded;
using calibration::kTypes;
using calibration::model_sizes;
using calibration::ModelSize;
using calibration::product_flops;
using calibration::product_sizes;
using calibration::share_of;
using plan::ComputeType;
using plan::MeasuredKind;
using plan::MeasuredRate;

/// What the planner counts for a step of AdamW in fp32, a parameter: reading a
/// gradient for its norm and scaling it, and one pass over all.
constexpr double kOptimizerBytes = 5.0 * 4.0 + 2.0 * 4.0 + 2.0 * 8.0;

LlamaConfig llama_config(const ModelSize& size) {
  LlamaConfig config;
  config.hidden_size = size.width;
  config.intermediate_size = size.width * 43 / 16;
  config.num_hidden_layers = size.layers;
  config.num_attention_heads = std::max<std::int64_t>(4, size.width / 64);
  config.num_key_value_heads = config.num_attention_heads;
  config.head_dim = size.width / config.num_attention_heads;
  config.vocab_size = 256;
  config.max_position_embeddings = size.seq_len;
  return config;
}

TrainConfig train_config(const ModelSize& size, ComputeType type,
                         const char* strategy) {
  TrainConfig config;
  config.data.seq_len = size.seq_len;
  config.train.batch_size = size.batch;
  config.fsdp.strategy = strategy;
  config.fsdp.param_dtype = plan::to_string(type);
  return config;
}

class Calibration {
 public:
  Calibration(const DeviceMesh& mesh, const CalibrationOptions& options,
              plan::Cluster& cluster)
      : mesh_(mesh),
        options_(options),
        timer_(options.seconds_each),
        cluster_(cluster) {}

  void run() {
    for (const ComputeType type : kTypes) {
      measure_products(type);
      measure_attention(type);
    }
    // All before any of them is used: predictions must not know them.
    std::vector<MeasuredRate> of_steps;
    for (const ComputeType type : kTypes) {
      for (const ModelSize& size : model_sizes(type)) {
        if (product_flops(size) > options_.most_flops) {
          continue;
        }
        measure_full_shard(size, type, of_steps);
        if (size.sums_whole && mesh_.world_size() > 1) {
          measure_no_shard(size, type, of_steps);
        }
      }
    }
    cluster_.gpu.measured.insert(cluster_.gpu.measured.end(), of_steps.begin(),
                                 of_steps.end());
    if (!options_.scratch.empty()) {
      measure_disk();
    }
  }

 private:
  /// Mean over ranks: the same on all of them.
  double agreed(double seconds) {
    return sum_over_ranks(mesh_.world(), std::vector{seconds},
                          "calibration")[0] /
           mesh_.world_size();
  }

  static MeasuredRate rate_of(MeasuredKind kind, ComputeType type,
                              std::array<double, 3> sizes, double work,
                              double seconds) {
    return {
        .kind = kind, .compute = type, .sizes = sizes, .per_s = work / seconds};
  }

  void measure_products(ComputeType type) {
    for (const auto& [rows, inner, columns] :
         product_sizes(options_.most_flops, type)) {
      const std::array sizes = {static_cast<double>(rows),
                                static_cast<double>(inner),
                                static_cast<double>(columns)};
      cluster_.gpu.measured.push_back(rate_of(
          MeasuredKind::Product, type, sizes,
          6.0 * sizes[0] * sizes[1] * sizes[2],
          agreed(timer_.linear(rows, inner, columns, scalar_type(type)))));
    }
  }

  void measure_attention(ComputeType type) {
    for (const auto& [seq_len, head_dim] : kAttentions) {
      // As many heads as make a quarter of a million elements of a query.
      const std::int64_t heads =
          std::max<std::int64_t>(1, 4096 / (seq_len * head_dim / 64));
      const double scores = static_cast<double>(heads * seq_len) *
                            (static_cast<double>(seq_len) + 128.0) / 2.0;
      const double flops = 3.5 * 4.0 * scores * static_cast<double>(head_dim);
      if (flops > calibration::kMostProductFlops * share_of(type)) {
        continue;
      }
      cluster_.gpu.measured.push_back(rate_of(
          MeasuredKind::Attention, type,
          {static_cast<double>(seq_len), static_cast<double>(head_dim), 1.0},
          flops,
          agreed(
              timer_.attention(seq_len, heads, head_dim, scalar_type(type)))));
    }
  }

  /// The parts of a step, beside what the planner makes of its operators.
  void measure_full_shard(const ModelSize& size, ComputeType type,
                          std::vector<MeasuredRate>& rates) {
    const LlamaConfig model = llama_config(size);
    const TrainConfig config = train_config(size, type, "full_shard");
    const StepRates step =
        measure_steps(config, model, mesh_, options_.seconds_of_steps);
    const plan::TimePlan alone =
        plan::make_plan(plan_request(model, config, mesh_.axes(), cluster_))
            .time;
    rates.push_back(rate_of(
        MeasuredKind::Step, type,
        {static_cast<double>(size.batch * size.seq_len),
         static_cast<double>(size.width), 1.0},
        alone.forward_s + alone.backward_s - alone.contention_s, step.compute));
    const double stepped =
        static_cast<double>(model.numel()) / mesh_.world_size();
    rates.push_back(rate_of(MeasuredKind::Optimizer, ComputeType::Fp32,
                            {stepped, 1.0, 1.0}, stepped * kOptimizerBytes,
                            step.optimizer));
    if (mesh_.world_size() > 1) {
      const std::array unit = {layer_bytes(model, type), 1.0, 1.0};
      rates.push_back(rate_of(MeasuredKind::Gather, type, unit,
                              step.gathered_bytes, step.gather));
      rates.push_back(rate_of(MeasuredKind::Reduce, type, unit,
                              step.reduced_bytes, step.reduce));
    }
  }

  /// What summing whole gradients takes.
  void measure_no_shard(const ModelSize& size, ComputeType type,
                        std::vector<MeasuredRate>& rates) {
    const LlamaConfig model = llama_config(size);
    const StepRates step =
        measure_steps(train_config(size, type, "no_shard"), model, mesh_,
                      options_.seconds_of_steps);
    rates.push_back(rate_of(MeasuredKind::AllReduce, type,
                            {layer_bytes(model, type), 1.0, 1.0},
                            step.reduced_bytes, step.reduce));
  }

  /// Bytes of moments, read and written, in the time of a step that does
  /// nothing but wait for them.
  void measure_disk() {
    const ModelSize size = options_.most_flops < product_flops(kOffloaded)
                               ? kModels.front()
                               : kOffloaded;
    const LlamaConfig model = llama_config(size);
    TrainConfig config = train_config(size, ComputeType::Bf16, "full_shard");
    config.memory.offload = "optimizer";
    config.memory.offload_to = options_.scratch;
    const StepRates step =
        measure_steps(config, model, mesh_, 3.0 * options_.seconds_of_steps);
    constexpr double kMomentBytes = 2.0 * 8.0;
    cluster_.disk_bytes_per_s = kMomentBytes *
                                static_cast<double>(model.numel()) /
                                mesh_.world_size() / step.optimizer;
  }

  /// Of a layer of the model, and its share of the rest, in this type.
  static double layer_bytes(const LlamaConfig& model, ComputeType type) {
    const double each = type == ComputeType::Fp32 ? 4.0 : 2.0;
    return each * static_cast<double>(model.numel()) /
           static_cast<double>(model.num_hidden_layers);
  }

  const DeviceMesh& mesh_;
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
  const DeviceMesh mesh = DeviceMesh::connect(
      rendezvous,
      {.backend = "shm", .axes = mesh_axes(TrainConfig(), rendezvous)});
  Communicator& world = mesh.world();
  at::set_num_threads(own_cores(world, rendezvous));
  plan::Cluster cluster = host_cluster(rendezvous);
  const double ranks = world.world_size();
  const MachineRates fp32 = measure_machine(world, at::kFloat);
  const MachineRates bf16 = measure_machine(world, at::kBFloat16);
  cluster.gpu.peak_32bit_flops = fp32.matmul_flops / ranks;
  cluster.gpu.peak_16bit_flops = bf16.matmul_flops / ranks;
  cluster.gpu.memory_bytes_per_s = fp32.memory_bytes / ranks;
  cluster.inside = measure_link(world, cluster.inside);
  if (world.world_size() > 1) {
    const DeviceMesh gloo =
        DeviceMesh::connect(rendezvous, {.backend = "gloo"});
    cluster.between = measure_link(gloo.world(), cluster.between);
  }
  Calibration(mesh, options, cluster).run();
  return cluster;
}

}  // namespace accordion
