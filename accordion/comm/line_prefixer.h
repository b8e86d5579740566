// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "accordion/comm/shm/file_descriptor.h"

namespace accordion::detail {

/// Passes the lines of one descriptor on to another with a prefix before each.
/// Whole lines only, so that those of several sources do not mix.
class LinePrefixer {
 public:
  /// `target` is not owned.
  LinePrefixer(FileDescriptor source, int target, std::string prefix)
      : source_(std::move(source)),
        target_(target),
        prefix_(std::move(prefix)) {}

  /// The descriptor to poll; -1 once the source has ended.
  [[nodiscard]] int fd() const { return source_.get(); }

  /// Reads once, when fd() is readable, and passes on the lines that are whole.
  void pump();

  /// Reads what is there and ends, though the source may not have ended: a
  /// process that a rank left behind may hold it open.
  void drain();

 private:
  void finish();
  void flush_lines();
  void write_all(std::string_view text) const;

  FileDescriptor source_;
  int target_;
  std::string prefix_;
  std::string pending_;  // the start of a line
};

}  // namespace accordion::detail
