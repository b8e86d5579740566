// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/data/batch_sampler.h"
#include "accordion/data/corpus.h"
#include "accordion/data/tokenizer.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What one rank of a run reads.
struct RunData {
  Corpus corpus;  ///< what the sampler draws from; outlives it
  BatchSampler sampler;
  std::vector<Batch> validation;  ///< empty where eval.every is 0
};

/// Who reads the data, and for which model.
struct DataReader {
  int rank = 0;
  int world_size = 1;
  std::int64_t vocab_size = 256;  ///< of the model
};

/// Throws what is wrong with the data of a run as far as headers tell: cheap,
/// and so called before ranks meet.
///
/// Throws std::invalid_argument: files that are not there or no data, fewer
///        tokens than a sample, a vocabulary larger than the model's, or
///        sample.prompt for token files of an unknown tokenizer
void check_data(const TrainConfig& config, const Tokenizer& tokenizer,
                std::int64_t vocab_size);

/// Opens the data of a run and cuts it as the configuration says; makes caches
/// where these are missing or stale.
///
/// Throws as Corpus::open
RunData open_data(const TrainConfig& config, const Tokenizer& tokenizer,
                  const DataReader& reader, const std::stop_token& stop = {});

/// The same on all ranks: where caches are needed, the first rank of each host
/// makes them while the others wait, however long that takes.
///
/// Comm   that of run_while_others_wait, twice where caches are needed, and of
///        require_equal
/// Throws std::runtime_error on every rank when one fails, or sees other data
///        than rank 0; CommError
RunData open_data_together(const TrainConfig& config,
                           const Tokenizer& tokenizer, std::int64_t vocab_size,
                           const Rendezvous& rendezvous, Communicator& world);

/// The configuration with train.steps in place of train.epochs.
///
/// Throws std::invalid_argument for a schedule longer than the epochs
TrainConfig with_steps(const TrainConfig& config, const BatchSampler& sampler);

/// Files, tokens and samples in a line, for a person.
std::string describe(const RunData& data, const TrainConfig& config);

/// Tokens of one step on one rank.
std::int64_t tokens_per_rank(const TrainConfig& config);

}  // namespace accordion
