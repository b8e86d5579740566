// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/support/temporary_folder.h"

namespace accordion::testing {

/// A file system of its own, which only this thread and those that it starts
/// see. Needs root.
class MountedFolder {
 public:
  /// `type` and `options` as of mount(8): "tmpfs", "size=1m".
  explicit MountedFolder(const char* type, const char* options = "") {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", path().c_str(), type, 0, options) != 0) {
      why_not_ = std::string("no ") + type +
                 " of its own can be mounted: " + std::strerror(errno);
    }
  }
  MountedFolder(const MountedFolder&) = delete;
  MountedFolder& operator=(const MountedFolder&) = delete;
  ~MountedFolder() {
    if (why_not_.empty()) {
      ::umount2(path().c_str(), MNT_DETACH);
    }
  }

  [[nodiscard]] const std::filesystem::path& path() const {
    return folder_.path();
  }
  /// Why there is none; empty where there is.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

 private:
  TemporaryFolder folder_;
  std::string why_not_;
};

}  // namespace accordion::testing
