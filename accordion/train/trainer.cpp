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

TrainResult train(const TrainConfig& config, const Rendezvous& rendezvous) {
  at::set_num_threads(compute_threads(config, rendezvous));
  RunData data = open_data(config, rendezvous.rank, rendezvous.world_size);
  const LlamaConfig model = open_model_config(config);
  const DeviceMesh mesh =
      DeviceMesh::connect(rendezvous, {.backend = config.fsdp.backend});
  const fs::path folder = text_from_rank_0(
      mesh.world(),
      [&] {
        const fs::path path = create_run_folder(
            config.run.dir, fs::path(config.model.config).stem().string(),
            std::time(nullptr));
        write_file(config_file(path), to_toml(config));
        return path.string();
      },
      "run folder");
  TrainResult result;
  result.run_folder = folder;
  result.summary =
      TrainingRun(config, mesh, model, std::move(data), folder).execute();
  return result;
}

}  // namespace accordion
