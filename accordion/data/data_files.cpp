// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/data_files.h"

#include <glob.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

namespace accordion {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& entry, const std::string& problem) {
  throw std::invalid_argument(
      fmt::format("[data] data.path has '{}', {}", entry, problem));
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

std::vector<fs::path> files_below(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  const fs::recursive_directory_iterator end;
  for (; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error) &&
               (holds_tokens(entry->path()) ||
                entry->path().extension() == ".txt")) {
      files.push_back(entry->path());
    }
  }
  if (error) {
    fail(folder, fmt::format("which cannot be read: {}.", error.message()));
  }
  if (files.empty()) {
    fail(folder,
         "a folder without a .txt or .bin file. Name other files by a glob, "
         "as in \"folder/*\".");
  }
  return files;
}

std::vector<fs::path> files_of_glob(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> files;
  // Sorted below, not as the locale would.
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      if (fs::is_regular_file(found.gl_pathv[i])) {
        files.emplace_back(found.gl_pathv[i]);
      }
    }
  }
  ::globfree(&found);
  if (files.empty()) {
    fail(pattern,
         "which is no file, no folder, and a glob that finds no file. "
         "Check the path.");
  }
  return files;
}

std::vector<fs::path> files_of(const std::string& entry) {
  std::vector<fs::path> files;
  std::error_code error;
  const fs::file_status status = fs::status(entry, error);
  if (fs::is_directory(status)) {
    files = files_below(entry);
  } else if (fs::exists(status)) {
    files = {entry};
  } else {
    files = files_of_glob(entry);
  }
  std::ranges::sort(files, {},
                    [](const fs::path& file) { return file.native(); });
  return files;
}

}  // namespace

std::vector<fs::path> find_data_files(std::span<const std::string> entries) {
  std::vector<fs::path> files;
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    for (const fs::path& file : files_of(entry)) {
      if (!seen.insert(fs::weakly_canonical(file).native()).second) {
        fail(entry, fmt::format("which finds '{}' once more. Name each file "
                                "once.",
                                file.string()));
      }
      files.push_back(file);
    }
  }
  return files;
}

bool holds_tokens(const fs::path& file) {
  return file.extension() == ".bin";
}

}  // namespace accordion
