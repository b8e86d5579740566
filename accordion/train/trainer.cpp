// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/trainer.h"

#include <ctime>
#include <utility>

#include "accordion/train/config_options.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_folder.h"
#include "accordion/train/run_setup.h"
#include "accordion/train/training_run.h"

namespace accordion {

namespace fs = std::filesystem;

void check_run(const TrainConfig& config, const Rendezvous& rendezvous) {
  (void)mesh_axes(config, rendezvous);
  const auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, open_model_config(config).vocab_size);
}

TrainResult train(const TrainConfig& config, const Rendezvous& rendezvous) {
  RunSetup setup = prepare_run(config, rendezvous);
  const fs::path folder = text_from_rank_0(
      setup.mesh.world(),
      [&] {
        const fs::path path = create_run_folder(
            config.run.dir, fs::path(config.model.config).stem().string(),
            std::time(nullptr));
        write_file(config_file(path), to_toml(setup.config));
        return path.string();
      },
      "run folder");
  TrainResult result;
  result.run_folder = folder;
  result.summary = TrainingRun(setup.config, setup.mesh, setup.model,
                               *setup.tokenizer, std::move(setup.data), folder)
                       .execute();
  return result;
}

}  // namespace accordion
