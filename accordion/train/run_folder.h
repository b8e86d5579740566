// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "accordion/comm/shm/file_descriptor.h"

namespace accordion {

/// Makes the folder of a run and returns its path.
///
/// `dir` empty: runs/<date-time>-<model> below the working folder, with a
/// number at the end where that is taken. Otherwise `dir` itself, which may
/// exist only if it is empty.
///
/// Throws std::runtime_error that names the folder: it holds a run or anything
///        else already, or cannot be made
std::filesystem::path create_run_folder(const std::string& dir,
                                        std::string_view model,
                                        std::time_t now);

/// Files of a run folder.
std::filesystem::path config_file(const std::filesystem::path& run);
std::filesystem::path metrics_file(const std::filesystem::path& run);
std::filesystem::path log_file(const std::filesystem::path& run, int rank);

/// Keeps other processes from training the same run: two would write to the
/// same unfinished checkpoint. Held until it is destroyed or its process ends
/// in any way. File systems that lock no folders (NFS) let both through.
class RunLock {
 public:
  /// Throws std::runtime_error that names the folder when another has it
  explicit RunLock(const std::filesystem::path& run);

 private:
  detail::FileDescriptor folder_;
};

/// The log of one rank: lines with the time since its start, flushed at once.
/// They follow those that are there.
class RankLog {
 public:
  /// Throws std::runtime_error that names the file when it cannot be written
  RankLog(const std::filesystem::path& run, int rank);

  void line(std::string_view text);

 private:
  std::ofstream file_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace accordion
