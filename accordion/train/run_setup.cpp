// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_setup.h"

#include <utility>

#include <ATen/Parallel.h>

#include "accordion/train/config_options.h"
#include "accordion/train/training_model.h"

namespace accordion {

RunSetup prepare_run(const TrainConfig& config, const Rendezvous& rendezvous) {
  at::set_num_threads(compute_threads(config, rendezvous));
  const LlamaConfig model = open_model_config(config);
  auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, model.vocab_size);
  DeviceMesh mesh = DeviceMesh::connect(
      rendezvous,
      {.backend = config.fsdp.backend, .axes = mesh_axes(config, rendezvous)});
  RunData data = open_data_together(config, *tokenizer, model.vocab_size,
                                    rendezvous, mesh.world());
  TrainConfig resolved = with_steps(config, data.sampler);
  return {std::move(resolved), model, std::move(tokenizer), std::move(mesh),
          std::move(data)};
}

}  // namespace accordion
