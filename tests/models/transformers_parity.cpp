// SPDX-License-Identifier: BSD-3-Clause
//
// What tests/models/transformers_parity.py needs of Accordion, and no command
// offers:
//
//   transformers_parity checkpoint WEIGHTS CONFIG_JSON CHECKPOINT
//     a checkpoint of three ranks from any weights that Accordion reads
//   transformers_parity logits FOLDER TOKENS ROWS OUT
//     TOKENS, int64, in ROWS rows; OUT gets their logits, fp32
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "accordion/checkpoint/weight_source.h"
#include "accordion/models/llama.h"
#include "accordion/models/llama_parameters.h"
#include "tests/checkpoint/model_checkpoint.h"

namespace accordion {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_checkpoint(const std::string& weights, const std::string& config,
                      const std::string& to) {
  const std::string text = read_text(config);
  testing::ModelCheckpoint model{
      .values = {
          {"model/config.json", text},
          {"trainer/config", "model.config = \"m\"\ndata.path = \"d\"\n"},
          {"trainer/step", std::int64_t{0}}}};
  for (auto& [name, shape] :
       llama_parameters(LlamaConfig::from_json(text, config))) {
    model.parameters.push_back({name, shape});
  }
  const WeightSource source = WeightSource::open(weights);
  testing::write_checkpoint(to, model, [&](const ParameterShape& parameter) {
    std::vector<float> elements(
        static_cast<std::size_t>(source.find(parameter.name).numel()));
    source.read(parameter.name, parameter.shape, 0, elements);
    return elements;
  });
}

Unit<Llama> open_model(const std::string& folder) {
  Unit<Llama> model(LlamaConfig::from_file(folder));
  const WeightSource source = WeightSource::open(folder);
  for (auto& parameter : model->named_parameters()) {
    at::Tensor& value = parameter.value();
    source.read(
        parameter.key(), value.sizes().vec(), 0,
        {value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel())});
  }
  return model;
}

void write_logits(const std::string& folder, const std::string& tokens,
                  int64_t rows, const std::string& to) {
  const at::NoGradGuard no_grad;
  Unit<Llama> model = open_model(folder);
  std::string bytes = read_text(tokens);
  const auto seq_len =
      static_cast<int64_t>(bytes.size() / sizeof(int64_t)) / rows;
  const at::Tensor logits =
      model(at::from_blob(bytes.data(), {rows, seq_len}, at::kLong))
          .logits.contiguous();
  std::ofstream(to, std::ios::binary)
      .write(static_cast<const char*>(logits.const_data_ptr()),
             static_cast<std::streamsize>(logits.nbytes()));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == "checkpoint") {
    write_checkpoint(arguments[1], arguments[2], arguments[3]);
    return 0;
  }
  if (arguments.size() == 5 && arguments[0] == "logits") {
    write_logits(arguments[1], arguments[2], std::stoll(arguments[3]),
                 arguments[4]);
    return 0;
  }
  fmt::print(stderr, "See the first lines of the source.\n");
  return 2;
}

}  // namespace
}  // namespace accordion

int main(int argc, char** argv) {
  try {
    return accordion::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
