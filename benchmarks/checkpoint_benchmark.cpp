// SPDX-License-Identifier: BSD-3-Clause
// Saving and loading a Llama model with the state of AdamW, one rank of it.
//
//   checkpoint_benchmark CONFIG.json          started by checkpoint.py
//
// Ranks find each other as torchrun's do. Each reads commands, the same ones,
// from its standard input, a line each, and answers with a line of JSON:
//
//   save PATH     save_checkpoint
//   async PATH    CheckpointSaver: start, then finish
//   load PATH     load_checkpoint
//   checksum      checksum_of over as many bytes as this rank saves
//   copy          memcpy of these bytes
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/checkpoint_saver.h"
#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/checkpoint/snapshot.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/models/initialize.h"
#include "accordion/models/llama.h"
#include "accordion/module/meta_init.h"
#include "accordion/optim/adamw.h"

namespace {

using nlohmann::json;
using Model = accordion::Unit<accordion::Llama>;

double seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double status_mib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) {
      return std::stod(line.substr(field.size() + 1)) / 1024.0;
    }
  }
  return 0.0;
}

/// The peak of resident memory begins anew.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

Model make_model(const accordion::LlamaConfig& config) {
  const accordion::MetaInit meta;
  return Model(config);
}

class Bench {
 public:
  Bench(const accordion::LlamaConfig& config, const accordion::DeviceMesh& mesh)
      : mesh_(mesh), model_(make_model(config)) {
    accordion::FsdpOptions options;
    options.init.initial_value = [](const std::string& name,
                                    const at::Tensor& parameter)
        -> std::optional<accordion::InitialValue> {
      return accordion::initial_rule(name, parameter.sizes());
    };
    accordion::fully_shard(model_, mesh, options);
    optimizer_.emplace(model_, accordion::AdamWOptions{});
    saver_state_ = accordion::OptimizerStateTraits<accordion::AdamW>::access(
        *optimizer_, *model_);
    saver_.emplace(*model_, saver_state_.get());
    // One step, for moments that are not zero.
    const auto tokens =
        torch::arange(32, torch::kLong).remainder(config.vocab_size);
    model_(tokens.view({1, 32}), tokens.view({1, 32})).loss.backward();
    optimizer_->step();
    optimizer_->zero_grad();
  }

  json run(const std::string& command, const std::filesystem::path& path) {
    if (command == "save") {
      return timed([&] { save_checkpoint(model_, *optimizer_, path); });
    }
    if (command == "async") {
      return save_in_background(path);
    }
    if (command == "load") {
      return timed([&] { load_checkpoint(model_, *optimizer_, path); });
    }
    if (command == "checksum") {
      return over_bytes([](std::span<const std::byte> bytes, std::byte* into) {
        *into ^= static_cast<std::byte>(accordion::checksum_of(bytes));
      });
    }
    return over_bytes([](std::span<const std::byte> bytes, std::byte* into) {
      std::memcpy(into, bytes.data(), bytes.size());
    });
  }

 private:
  /// From when all ranks begin to when this one is done.
  template <class Body>
  json timed(Body&& body) {
    mesh_.world().barrier("command");
    const double resident = status_mib("VmRSS");
    reset_peak();
    const double processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const double start = seconds(CLOCK_MONOTONIC);
    body();
    return {{"seconds", seconds(CLOCK_MONOTONIC) - start},
            {"processor", seconds(CLOCK_PROCESS_CPUTIME_ID) - processor},
            {"grown_mib", status_mib("VmHWM") - resident}};
  }

  json save_in_background(const std::filesystem::path& path) {
    mesh_.world().barrier("command");
    const double start = seconds(CLOCK_MONOTONIC);
    saver_->start({.path = path});
    const double started = seconds(CLOCK_MONOTONIC);
    const auto result = saver_->finish();
    if (!result.error.empty()) {
      throw std::runtime_error(result.error);
    }
    return {{"seconds", started - start},
            {"background", result.background_seconds}};
  }

  /// Over what this rank saves, a block at a time.
  template <class Body>
  json over_bytes(Body&& body) {
    const auto snapshot =
        accordion::detail::take_snapshot(*model_, saver_state_.get());
    copy_.resize(static_cast<std::size_t>(snapshot.bytes()));
    return timed([&] {
      std::byte* into = copy_.data();
      for (const auto& range : snapshot.ranges) {
        for (auto left = range.bytes; !left.empty();) {
          const auto part = left.first(std::min(
              left.size(),
              static_cast<std::size_t>(accordion::kChecksumBlockBytes)));
          body(part, into);
          into += part.size();
          left = left.subspan(part.size());
        }
      }
    });
  }

  accordion::DeviceMesh mesh_;
  Model model_;
  std::optional<accordion::AdamW> optimizer_;
  std::unique_ptr<accordion::OptimizerStateAccess> saver_state_;
  std::optional<accordion::CheckpointSaver> saver_;
  std::vector<std::byte> copy_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: checkpoint_benchmark CONFIG.json\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto mesh = accordion::DeviceMesh::from_environment();
  Bench bench(accordion::LlamaConfig::from_file(argv[1]), mesh);
  std::cout << "{}" << std::endl;  // ready
  for (std::string command, path; std::cin >> command;) {
    std::getline(std::cin >> std::ws, path);
    std::cout << bench.run(command, path).dump() << std::endl;
  }
  return 0;
}
