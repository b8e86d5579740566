// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_data.h"

#include <utility>

#include "accordion/train/evaluation.h"

namespace accordion {
namespace {

BatchSampler make_sampler(const TrainConfig& config, const Corpus& corpus,
                          int rank, int world_size) {
  const bool strided = config.data.order == "strided";
  return {strided ? corpus.text() : corpus.training(),
          {.order = strided ? SampleOrder::Strided : SampleOrder::Shuffled,
           .seq_len = config.data.seq_len,
           .batch_size = config.train.batch_size,
           .grad_accumulation = config.train.grad_accumulation,
           .rank = rank,
           .world_size = world_size,
           .seed = static_cast<std::uint64_t>(config.run.seed)}};
}

std::vector<Batch> validation_batches(const TrainConfig& config,
                                      const Corpus& corpus, int rank,
                                      int world_size) {
  if (config.eval.every == 0) {
    return {};
  }
  return evaluation_batches(corpus.validation(),
                            {.seq_len = config.data.seq_len,
                             .sequences = config.eval.sequences,
                             .batch_size = config.train.batch_size,
                             .rank = rank,
                             .world_size = world_size});
}

}  // namespace

RunData open_data(const TrainConfig& config, int rank, int world_size) {
  Corpus corpus =
      Corpus::open(config.data.path, config.data.validation_fraction);
  const BatchSampler sampler = make_sampler(config, corpus, rank, world_size);
  std::vector<Batch> validation =
      validation_batches(config, corpus, rank, world_size);
  return {std::move(corpus), sampler, std::move(validation)};
}

std::int64_t tokens_per_rank(const TrainConfig& config) {
  return config.train.batch_size * config.train.grad_accumulation *
         config.data.seq_len;
}

}  // namespace accordion
