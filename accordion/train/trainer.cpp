// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/trainer.h"

#include <ctime>
#include <utility>

#include <ATen/Parallel.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/train/config_options.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_data.h"
#include "accordion/train/run_folder.h"
#include "accordion/train/training_run.h"

namespace accordion {

namespace fs = std::filesystem;

void check_run(const TrainConfig& config, const Rendezvous& rendezvous) {
  (void)mesh_axes(config, rendezvous);
  const auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, open_model_config(config).vocab_size);
}

TrainResult train(const TrainConfig& config, const Rendezvous& rendezvous) {
  at::set_num_threads(compute_threads(config, rendezvous));
  const LlamaConfig model = open_model_config(config);
  const auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, model.vocab_size);
  const DeviceMesh mesh = DeviceMesh::connect(
      rendezvous,
      {.backend = config.fsdp.backend, .axes = mesh_axes(config, rendezvous)});
  RunData data = open_data_together(config, *tokenizer, model.vocab_size,
                                    rendezvous, mesh.world());
  const TrainConfig resolved = with_steps(config, data.sampler);
  const fs::path folder = text_from_rank_0(
      mesh.world(),
      [&] {
        const fs::path path = create_run_folder(
            config.run.dir, fs::path(config.model.config).stem().string(),
            std::time(nullptr));
        write_file(config_file(path), to_toml(resolved));
        return path.string();
      },
      "run folder");
  TrainResult result;
  result.run_folder = folder;
  result.summary =
      TrainingRun(resolved, mesh, model, *tokenizer, std::move(data), folder)
          .execute();
  return result;
}

}  // namespace accordion
