// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accordion {

/// Everything `accordion train` can be told, with its defaults. The keys of a
/// configuration file are the paths of these fields ("train.batch_size");
/// config_keys.cpp documents each, with its range.
///
/// A value that load_config returned is valid; treat it as immutable.
struct TrainConfig {
  struct Run {
    std::string dir;  ///< empty: a new folder under runs/
    std::int64_t seed = 1;
  } run;
  struct Model {
    std::string config;
    std::string init;  ///< empty: fresh weights
  } model;
  struct Data {
    std::vector<std::string> path;  ///< files, folders and globs
    std::string tokenizer = "bytes";
    std::string token_dtype = "auto";
    std::string packing = "stream";
    std::string document_separator;  ///< empty: a file is a document
    std::int64_t bos_token = -1;     ///< of token files; -1: none
    std::int64_t eos_token = -1;
    std::int64_t seq_len = 256;
    std::string order = "shuffled";
    double validation_fraction = 0.05;
    std::string cache_dir;  ///< empty: token-cache beside the run folder
  } data;
  struct Train {
    std::int64_t steps = 1000;  ///< 0: as many as epochs or seconds say
    std::int64_t epochs = 0;    ///< 0: steps say how long; else steps is 0
    double seconds = 0.0;       ///< 0: no limit
    std::int64_t batch_size = 8;
    std::int64_t grad_accumulation = 1;
    std::int64_t threads = 0;  ///< 0: the host's cores over its ranks
    std::string device = "cpu";
    std::string nonfinite = "error";
    std::string spike = "allow";
    double spike_factor = 2.0;
    std::int64_t max_skips = 10;     ///< in a row
    std::int64_t max_rollbacks = 3;  ///< in the run
  } train;
  struct Optimizer {
    double lr = 3e-4;
    std::array<double, 2> betas = {0.9, 0.95};
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;       ///< 0: gradients are not clipped
    double loss_scale = 65536.0;  ///< at first; of fp16
    std::int64_t loss_scale_interval = 2000;
    bool decay_norms = false;
    std::string clip_in_backward = "previous_norm";
    std::string moments_dtype = "fp32";
    bool stochastic_rounding = false;
  } optimizer;
  struct Schedule {
    std::string name = "constant";
    std::int64_t warmup_steps = 0;
    double min_lr_ratio = 0.1;
    std::int64_t decay_steps = 0;  ///< of wsd; 0: the last fifth of the run
    std::string decay_shape = "linear";
  } schedule;
  struct Fsdp {
    std::string strategy = "full_shard";
    std::int64_t replicas = 0;                  ///< 0: one, or as hybrid says
    std::optional<bool> reshard_after_forward;  ///< unset: all but the root
    std::int64_t reshard_to_ranks = 0;          ///< 0: to all
    std::string accumulation = "auto";
    std::optional<bool> keep_parameters;  ///< unset: for shard_optimizer
    std::string param_dtype = "fp32";
    std::string reduce_dtype = "fp32";
    std::int64_t prefetch = 1;
    std::int64_t prefetch_bytes = 0;   ///< 0: no limit
    std::int64_t min_shard_numel = 0;  ///< 0: all are sharded
    bool copies_in_place = true;
    std::string backend = "auto";
    double timeout = 300.0;  ///< seconds
  } fsdp;
  struct Memory {
    std::string activation_checkpointing = "none";  ///< checkpointed_every
    std::int64_t chunked_loss_tokens = 0;           ///< 0: all at once
    bool optimizer_in_backward = false;
    std::string offload = "none";
    std::string offload_to = "nvme";
    bool offload_activations = false;
    std::string limit;  ///< see bytes_of_limit
  } memory;
  struct Eval {
    std::int64_t every = 0;  ///< 0: never
    std::int64_t sequences = 64;
  } eval;
  struct Sample {
    std::string prompt;  ///< empty: no sample
    std::int64_t length = 300;
    double temperature = 0.7;
  } sample;
  struct Checkpoint {
    std::string dir;           ///< empty: checkpoints in the run folder
    std::int64_t every = 500;  ///< 0: none
    std::int64_t keep = 2;     ///< 0: all
    std::int64_t keep_every = 0;
    bool async = true;
  } checkpoint;
  struct Log {
    std::int64_t every = 10;
  } log;
};

/// Reads a TOML file, then applies `overrides` ("train.steps=10"). Relative
/// paths in the file are relative to its folder, those in overrides to the
/// working folder; both come out absolute.
///
/// Throws std::invalid_argument that names file and line: a file that is no
///        TOML, an unknown key (with the nearest valid one), a value of the
///        wrong type, out of range, or at odds with another
TrainConfig load_config(const std::filesystem::path& file,
                        std::span<const std::string> overrides = {});

/// Checks what no single key can tell; `place` stands for the file in errors.
///
/// Throws std::invalid_argument for keys that contradict each other
void validate_config(const TrainConfig& config, const std::string& place);

/// The same as load_config from text; `name` stands for the file in errors and
/// its parent folder is where relative paths start.
TrainConfig parse_config(std::string_view text,
                         const std::filesystem::path& name,
                         std::span<const std::string> overrides = {});

/// What memory.activation_checkpointing means: every n-th layer keeps no
/// activations; 0: none does, or all do in part ("selective"), or that is not
/// chosen yet ("auto", with_checkpointing). nullopt for a text that means
/// nothing.
std::optional<std::int64_t> checkpointed_every(const std::string& value);

/// What memory.limit means, in bytes: "8GiB", "800 MiB", or a number of MiB; 0,
/// of an empty text: no limit. nullopt for a text that means nothing.
std::optional<std::int64_t> bytes_of_limit(std::string_view value);

/// A TOML file with every key; load_config reads the same values back.
std::string to_toml(const TrainConfig& config);

/// Keys whose values differ, a line each: "optimizer.lr = 0.001, was 0.01".
std::vector<std::string> config_changes(const TrainConfig& before,
                                        const TrainConfig& now);

/// Each key with type, default and meaning, for a terminal.
std::string config_help();

}  // namespace accordion
