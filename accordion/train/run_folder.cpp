// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

namespace accordion {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view cause) {
  throw std::runtime_error(fmt::format(
      "[run_folder] '{}' {}. Choose another run.dir.", path.string(), cause));
}

std::string timestamp(std::time_t now) {
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  const std::size_t length =
      std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return {text.data(), length};
}

void make_parents(const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) {
    fs::create_directories(path.parent_path(), error);
  }
  if (error) {
    fail(path, fmt::format("cannot be made: {}", error.message()));
  }
}

/// Makes the folder; false when something of that name exists. Atomic, so that
/// two runs that start together cannot share one.
bool make_new(const fs::path& path) {
  std::error_code error;
  const bool made = fs::create_directory(path, error);
  if (error && error != std::errc::file_exists) {
    fail(path, fmt::format("cannot be made: {}", error.message()));
  }
  return made;
}

}  // namespace

fs::path create_run_folder(const std::string& dir, std::string_view model,
                           std::time_t now) {
  if (!dir.empty()) {
    make_parents(dir);
    std::error_code error;
    if (!make_new(dir) && !fs::is_empty(dir, error)) {
      fail(dir, "exists already, and a run is never overwritten");
    }
    return dir;
  }
  const fs::path base =
      fs::current_path() / "runs" / fmt::format("{}-{}", timestamp(now), model);
  make_parents(base);
  fs::path path = base;
  for (int number = 2; !make_new(path); ++number) {
    path = fmt::format("{}-{}", base.string(), number);
  }
  return path;
}

fs::path config_file(const fs::path& run) {
  return run / "config.toml";
}

fs::path metrics_file(const fs::path& run) {
  return run / "metrics.jsonl";
}

fs::path log_file(const fs::path& run, int rank) {
  return run / fmt::format("log-rank{}.txt", rank);
}

RunLock::RunLock(const fs::path& run)
    : folder_(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw std::runtime_error(fmt::format(
        "[train] The run in '{}' is being trained by another process. Wait "
        "for its end, or end it, before the run is resumed.",
        run.string()));
  }
}

RankLog::RankLog(const fs::path& run, int rank)
    : file_(log_file(run, rank), std::ios::app),
      start_(std::chrono::steady_clock::now()) {
  if (!file_) {
    fail(log_file(run, rank), "cannot be written");
  }
}

void RankLog::line(std::string_view text) {
  const std::chrono::duration<double> since =
      std::chrono::steady_clock::now() - start_;
  file_ << fmt::format("{:10.3f} s  {}\n", since.count(), text) << std::flush;
}

}  // namespace accordion
