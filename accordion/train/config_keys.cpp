// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/config_keys.h"

#include "accordion/train/config_key_table.h"

namespace accordion {
namespace {

using detail::at_least;
using detail::from_to;

std::vector<ConfigKey> input_keys() {
  return {
      {.name = "run.dir",
       .field = ACCORDION_FIELD(run.dir),
       .doc = "Run folder, which must not exist yet unless the run is "
              "resumed (--resume); empty: runs/<date-time>-<model>.",
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
  };
}

std::vector<ConfigKey> report_keys() {
  return {
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

      {.name = "checkpoint.every",
       .field = ACCORDION_FIELD(checkpoint.every),
       .doc = "Steps between checkpoints. There is one at the end of the run "
              "too, and when a signal ends it. 0: none at all.",
       .range = at_least(0)},
      {.name = "checkpoint.keep",
       .field = ACCORDION_FIELD(checkpoint.keep),
       .doc = "Newest checkpoints that are kept, older ones are removed; 0: "
              "all are kept.",
       .range = at_least(0)},
      {.name = "checkpoint.keep_every",
       .field = ACCORDION_FIELD(checkpoint.keep_every),
       .doc = "Checkpoints of steps that this divides are kept as well; 0: no "
              "others.",
       .range = at_least(0)},
      {.name = "checkpoint.async",
       .field = ACCORDION_FIELD(checkpoint.async),
       .doc = "Training goes on while a copy of its state is written: memory "
              "for the copy, in place of time."},
      {.name = "checkpoint.dir",
       .field = ACCORDION_FIELD(checkpoint.dir),
       .doc = "Folder of this run's checkpoints; empty: checkpoints in the run "
              "folder.",
       .is_path = true},

      {.name = "log.every",
       .field = ACCORDION_FIELD(log.every),
       .doc = "Steps between lines on an output that is no terminal, and in "
              "the logs of the ranks.",
       .range = at_least(1)},
  };
}

const std::vector<ConfigKey>& table() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (auto part : {input_keys(), detail::training_keys(), report_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  return table();
}

}  // namespace accordion
