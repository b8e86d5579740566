// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/config_keys.h"

namespace accordion {
namespace {

ConfigRange at_least(double low) {
  return {.low = low};
}
ConfigRange above(double low) {
  return {.low = low, .low_open = true};
}
/// From low to high, `high` itself left out.
ConfigRange from_to(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

/// Field of a key: `ACCORDION_FIELD(train.steps)` is the pointer to that
/// member.
#define ACCORDION_FIELD(member) \
  [](TrainConfig& config) -> ConfigField { return &config.member; }

const std::vector<ConfigKey>& table() {
  static const std::vector<ConfigKey> keys = {
      {.name = "run.dir",
       .field = ACCORDION_FIELD(run.dir),
       .doc = "Run folder, which must not exist yet; empty: "
              "runs/<date-time>-<model>.",
       .is_path = true},
      {.name = "run.seed",
       .field = ACCORDION_FIELD(run.seed),
       .doc = "Seed of fresh weights, of the data order and of the sample.",
       .range = at_least(0)},

      {.name = "model.config",
       .field = ACCORDION_FIELD(model.config),
       .doc = "Hugging Face config.json of a Llama-family model. Required.",
       .is_path = true},
      {.name = "model.init",
       .field = ACCORDION_FIELD(model.init),
       .doc = "Weights to start from: a safetensors file or a Hugging Face "
              "folder; empty: fresh from run.seed.",
       .is_path = true},

      {.name = "data.path",
       .field = ACCORDION_FIELD(data.path),
       .doc = "What to train on: a file, a folder (every .txt or .bin below "
              "it), a glob, or a list of these in brackets. Files ending in "
              ".bin hold token ids, all others text; docs/data.md has the "
              "formats. Required.",
       .is_path = true},
      {.name = "data.tokenizer",
       .field = ACCORDION_FIELD(data.tokenizer),
       .doc = "How text becomes tokens. bytes: a token is a byte. Else the "
              "path of a SentencePiece .model. With token files: that of "
              "sample.prompt.",
       .choices = {"bytes"},
       .is_path = true},
      {.name = "data.token_dtype",
       .field = ACCORDION_FIELD(data.token_dtype),
       .doc = "Type of the ids in token files; auto: as their header says.",
       .choices = {"auto", "uint16", "uint32"}},
      {.name = "data.packing",
       .field = ACCORDION_FIELD(data.packing),
       .doc = "stream: samples are windows over all files end to end. "
              "documents: samples hold whole documents where they fit, and "
              "nothing is predicted across their edges.",
       .choices = {"stream", "documents"}},
      {.name = "data.document_separator",
       .field = ACCORDION_FIELD(data.document_separator),
       .doc = "Ends a document in text files; empty: a file is a document."},
      {.name = "data.bos_token",
       .field = ACCORDION_FIELD(data.bos_token),
       .doc = "Id that begins a document in token files; -1: none. Text knows "
              "it from its tokenizer.",
       .range = at_least(-1)},
      {.name = "data.eos_token",
       .field = ACCORDION_FIELD(data.eos_token),
       .doc = "Id that ends a document in token files; -1: none.",
       .range = at_least(-1)},
      {.name = "data.seq_len",
       .field = ACCORDION_FIELD(data.seq_len),
       .doc = "Tokens of a training sample.",
       .range = at_least(1)},
      {.name = "data.order",
       .field = ACCORDION_FIELD(data.order),
       .doc = "shuffled: samples of the training part, each once an epoch, in "
              "an order that each epoch has of its own. strided: sample i of "
              "step s on rank r starts at token ((s*world + r)*batch + "
              "i)*seq_len mod (tokens - seq_len - 1) of the whole data, or is "
              "its row ((s*world + r)*batch + i) mod rows of documents; "
              "nothing is held out.",
       .choices = {"shuffled", "strided"}},
      {.name = "data.validation_fraction",
       .field = ACCORDION_FIELD(data.validation_fraction),
       .doc = "Part of the tokens, at the end of the last files, that is held "
              "out from shuffled training.",
       .range = from_to(0, 1)},
      {.name = "data.cache_dir",
       .field = ACCORDION_FIELD(data.cache_dir),
       .doc = "Folder for what is made of the data once: tokens of text, "
              "places of documents. Empty: token-cache beside the run folder.",
       .is_path = true},

      {.name = "train.steps",
       .field = ACCORDION_FIELD(train.steps),
       .doc = "Optimizer steps; 0: as many as train.epochs or train.seconds "
              "say.",
       .range = at_least(0)},
      {.name = "train.epochs",
       .field = ACCORDION_FIELD(train.epochs),
       .doc = "Times that all training samples are seen, instead of "
              "train.steps; a last step that they do not fill takes the rest "
              "from the next epoch. 0: train.steps says.",
       .range = {.low = 0, .high = 1e6}},
      {.name = "train.seconds",
       .field = ACCORDION_FIELD(train.seconds),
       .doc = "Time budget of the training loop: it ends after the step in "
              "which it is spent, and the schedule then follows time. "
              "0: no limit. Such a run depends on the machine's speed.",
       .range = at_least(0)},
      {.name = "train.batch_size",
       .field = ACCORDION_FIELD(train.batch_size),
       .doc = "Sequences per rank and microbatch.",
       .range = at_least(1)},
      {.name = "train.grad_accumulation",
       .field = ACCORDION_FIELD(train.grad_accumulation),
       .doc = "Microbatches per step; their gradients add up.",
       .range = at_least(1)},
      {.name = "train.threads",
       .field = ACCORDION_FIELD(train.threads),
       .doc = "Compute threads per rank; 0: the host's cores divided by its "
              "ranks.",
       .range = at_least(0)},

      {.name = "optimizer.lr",
       .field = ACCORDION_FIELD(optimizer.lr),
       .doc = "Peak learning rate of AdamW.",
       .range = above(0)},
      {.name = "optimizer.betas",
       .field = ACCORDION_FIELD(optimizer.betas),
       .doc = "Decay of the running means of the gradient and of its square.",
       .range = from_to(0, 1)},
      {.name = "optimizer.eps",
       .field = ACCORDION_FIELD(optimizer.eps),
       .doc = "Added to the root of the second moment.",
       .range = above(0)},
      {.name = "optimizer.weight_decay",
       .field = ACCORDION_FIELD(optimizer.weight_decay),
       .doc = "Decoupled weight decay; parameters of one dimension (norms, "
              "biases) are left out, see optimizer.decay_norms.",
       .range = at_least(0)},
      {.name = "optimizer.clip_norm",
       .field = ACCORDION_FIELD(optimizer.clip_norm),
       .doc = "Gradients are scaled so that their global 2-norm is at most "
              "this; 0: not clipped.",
       .range = at_least(0)},
      {.name = "optimizer.decay_norms",
       .field = ACCORDION_FIELD(optimizer.decay_norms),
       .doc = "Weight decay also for parameters of one dimension."},

      {.name = "schedule.name",
       .field = ACCORDION_FIELD(schedule.name),
       .doc = "Learning rate after warm-up. constant: stays. cosine, linear: "
              "down to schedule.min_lr_ratio at the last step. wsd (warm-up, "
              "stable, decay): stays, and goes down in the last "
              "schedule.decay_steps.",
       .choices = {"constant", "cosine", "linear", "wsd"}},
      {.name = "schedule.warmup_steps",
       .field = ACCORDION_FIELD(schedule.warmup_steps),
       .doc = "Steps over which the learning rate rises linearly to "
              "optimizer.lr.",
       .range = at_least(0)},
      {.name = "schedule.min_lr_ratio",
       .field = ACCORDION_FIELD(schedule.min_lr_ratio),
       .doc = "Last learning rate over the peak, for every schedule but "
              "constant.",
       .range = {.low = 0, .high = 1}},
      {.name = "schedule.decay_steps",
       .field = ACCORDION_FIELD(schedule.decay_steps),
       .doc = "Steps at the end in which wsd goes down; 0: the last fifth of "
              "the steps, or of the time where only train.seconds ends the "
              "run.",
       .range = at_least(0)},
      {.name = "schedule.decay_shape",
       .field = ACCORDION_FIELD(schedule.decay_shape),
       .doc = "How wsd goes down: along a line, or as 1 - the square root of "
              "the part of the decay that is done.",
       .choices = {"linear", "1-sqrt"}},

      {.name = "fsdp.strategy",
       .field = ACCORDION_FIELD(fsdp.strategy),
       .doc = "full_shard: parameters, gradients and optimizer state are cut "
              "over the ranks. no_shard: whole everywhere, gradients "
              "all-reduced.",
       .choices = {"full_shard", "no_shard"}},
      {.name = "fsdp.reshard_after_forward",
       .field = ACCORDION_FIELD(fsdp.reshard_after_forward),
       .doc = "Free a unit's gathered parameters between forward and "
              "backward; unset: yes for every unit but the root."},
      {.name = "fsdp.param_dtype",
       .field = ACCORDION_FIELD(fsdp.param_dtype),
       .doc = "Dtype of gathered parameters and of computation; shards stay "
              "fp32.",
       .choices = {"fp32", "bf16"}},
      {.name = "fsdp.reduce_dtype",
       .field = ACCORDION_FIELD(fsdp.reduce_dtype),
       .doc = "Dtype to which the sum of the ranks' gradients is rounded.",
       .choices = {"fp32", "bf16"}},
      {.name = "fsdp.prefetch",
       .field = ACCORDION_FIELD(fsdp.prefetch),
       .doc = "Units gathered ahead of the one that computes.",
       .range = at_least(0)},
      {.name = "fsdp.backend",
       .field = ACCORDION_FIELD(fsdp.backend),
       .doc = "shm: shared memory, ranks of one host. gloo: TCP, any hosts.",
       .choices = {"shm", "gloo"}},

      {.name = "eval.every",
       .field = ACCORDION_FIELD(eval.every),
       .doc = "Steps between measurements on held-out text; 0: never.",
       .range = at_least(0)},
      {.name = "eval.sequences",
       .field = ACCORDION_FIELD(eval.sequences),
       .doc = "Windows of data.seq_len per measurement, evenly spread over "
              "the held-out text.",
       .range = at_least(1)},

      {.name = "sample.prompt",
       .field = ACCORDION_FIELD(sample.prompt),
       .doc = "Text that the trained model continues at the end; empty: no "
              "sample."},
      {.name = "sample.length",
       .field = ACCORDION_FIELD(sample.length),
       .doc = "Tokens to generate.",
       .range = at_least(1)},
      {.name = "sample.temperature",
       .field = ACCORDION_FIELD(sample.temperature),
       .doc = "Of sampling; 0: always the likeliest token.",
       .range = at_least(0)},

      {.name = "log.every",
       .field = ACCORDION_FIELD(log.every),
       .doc = "Steps between lines on an output that is no terminal, and in "
              "the logs of the ranks.",
       .range = at_least(1)},
  };
  return keys;
}
#undef ACCORDION_FIELD

}  // namespace

std::span<const ConfigKey> config_keys() {
  return table();
}

}  // namespace accordion
