// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_setup.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "accordion/comm/cores.h"
#include "accordion/comm/gather_values.h"
#include "accordion/comm/hierarchical/host_layout.h"
#include "accordion/train/config_options.h"
#include "accordion/train/training_model.h"

namespace accordion {

namespace {

/// Where a rank may compute.
struct Place {
  std::uint64_t host = 0;  ///< a hash of the host's identity
  CoreSet::Words cores = {};
};

}  // namespace

int own_cores(Communicator& world, const Rendezvous& rendezvous) {
  const Place mine{
      .host = std::hash<std::string>()(detail::host_of(rendezvous)),
      .cores = CoreSet::of_this_thread().words()};
  const std::vector<Place> all = gather_values(world, mine, "cores");
  std::vector<CoreSet> of_host;
  int index = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].host == mine.host) {
      index += static_cast<int>(rank) < world.rank() ? 1 : 0;
      of_host.emplace_back(all[rank].cores);
    }
  }
  return cores_of_rank(of_host, index);
}

RunSetup prepare_run(const TrainConfig& config, const Rendezvous& rendezvous) {
  const LlamaConfig model = open_model_config(config);
  auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, model.vocab_size);
  DeviceMesh mesh = DeviceMesh::connect(
      rendezvous,
      {.backend = config.train.device == "cuda" ? "nccl" : config.fsdp.backend,
       .axes = mesh_axes(config, rendezvous),
       .timeout = std::chrono::milliseconds(
           static_cast<std::int64_t>(config.fsdp.timeout * 1e3))});
  at::set_num_threads(
      compute_threads(config, own_cores(mesh.world(), rendezvous)));
  RunData data = open_data_together(config, *tokenizer, model.vocab_size,
                                    rendezvous, mesh.world());
  TrainConfig resolved = with_steps(config, data.sampler);
  return {std::move(resolved), model, std::move(tokenizer), std::move(mesh),
          std::move(data)};
}

}  // namespace accordion
