// SPDX-License-Identifier: BSD-3-Clause
#include "benchmarks/dd.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace accordion::benchmarks {
namespace {

namespace fs = std::filesystem;

/// Begins a dd; the arguments are its own.
pid_t start_dd(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"dd", "bs=4M", "status=none"});
  std::vector<char*> texts;
  for (std::string& argument : arguments) {
    texts.push_back(argument.data());
  }
  texts.push_back(nullptr);
  pid_t process = 0;
  if (::posix_spawnp(&process, "dd", nullptr, nullptr, texts.data(), environ) !=
      0) {
    throw std::runtime_error("dd cannot be started");
  }
  return process;
}

void await_dd(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) != process || status != 0) {
    throw std::runtime_error("dd failed");
  }
}

}  // namespace

Source::Source(std::int64_t bytes)
    : file_(detail::create_memory_file(bytes, "benchmark")),
      bytes_(detail::Mapping::shared(file_.get(), bytes, "benchmark")) {
  std::mt19937_64 random(1);
  auto* const words = reinterpret_cast<std::uint64_t*>(bytes_.data());
  std::generate_n(words, bytes / 8, [&] { return random(); });
}

std::string Source::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" +
         std::to_string(file_.get());
}

Dd::Dd(const fs::path& folder, const Source& source)
    : file_((folder / "offload_benchmark.dd").string()),
      other_(file_ + "2"),
      source_(source.path()) {
  await_dd(start_write(file_));
  await_dd(start_write(other_));
}

Dd::~Dd() {
  std::error_code ignored;
  fs::remove(file_, ignored);
  fs::remove(other_, ignored);
}

void Dd::write() const {
  await_dd(start_write(file_));
}

void Dd::read() const {
  await_dd(start_read());
}

void Dd::read_and_write() const {
  const pid_t reader = start_read();
  const pid_t writer = start_write(other_);
  await_dd(reader);
  await_dd(writer);
}

pid_t Dd::start_write(const std::string& file) const {
  return start_dd(
      {"if=" + source_, "of=" + file, "oflag=direct", "conv=notrunc"});
}

pid_t Dd::start_read() const {
  return start_dd({"if=" + file_, "of=/dev/null", "iflag=direct"});
}

}  // namespace accordion::benchmarks
