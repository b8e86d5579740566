// SPDX-License-Identifier: BSD-3-Clause
//
// Preloaded into ranks (LD_PRELOAD), ends one of them, or makes a call of it
// fail, at a chosen call that changes what is on the disk. Environment:
//
//   CRASH_RANK    the rank that is meant, as in RANK; others are left alone
//   CRASH_FOLDER  calls on paths and files below this folder count
//   CRASH_AT      which one, counted from 1; 0 or unset: none, just count
//   CRASH_ERROR   a number of errno: the call fails with it. Unset: the process
//                 is killed before the call, by SIGKILL; before a write, once
//                 half of it is done
//   CRASH_REST    set: all later calls of the same kind fail as well
//   CRASH_LOG     a file that gets a line for each call: KIND PATH
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Where to end, as the environment says.
struct Plan {
  bool active = !variable("RANK").empty() &&
                variable("RANK") == variable("CRASH_RANK") &&
                !variable("CRASH_FOLDER").empty();
  std::string folder = variable("CRASH_FOLDER");
  long at = std::atol(variable("CRASH_AT").c_str());
  int error = std::atoi(variable("CRASH_ERROR").c_str());
  bool rest = !variable("CRASH_REST").empty();
  int log = active && !variable("CRASH_LOG").empty()
                ? static_cast<int>(::syscall(
                      SYS_open, variable("CRASH_LOG").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644))
                : -1;
  std::atomic<long> calls = 0;
  std::atomic<const char*> failed_kind = nullptr;
};

Plan& plan() {
  static Plan instance;
  return instance;
}

std::string target_of_link(const std::string& link) {
  char text[4096];
  const ssize_t length = ::readlink(link.c_str(), text, sizeof(text));
  return length < 0 ? "" : std::string(text, static_cast<std::size_t>(length));
}

std::string path_of(int descriptor) {
  return target_of_link("/proc/self/fd/" + std::to_string(descriptor));
}

std::string path_at(int folder, const char* path) {
  if (path[0] == '/') {
    return path;
  }
  return (folder == AT_FDCWD ? target_of_link("/proc/self/cwd")
                             : path_of(folder)) +
         "/" + path;
}

bool lies_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

/// What becomes of a call.
enum class Fate { Done, Fails, Dies };

/// Counts a call. `kind` is a literal: its address tells kinds apart.
Fate fate_of(const char* kind, const std::string& path) {
  Plan& p = plan();
  if (!lies_below(path, p.folder)) {
    return Fate::Done;
  }
  const long number = ++p.calls;
  if (p.log >= 0) {
    const std::string line = std::string(kind) + " " + path + "\n";
    (void)::syscall(SYS_write, p.log, line.data(), line.size());
  }
  if (number == p.at) {
    p.failed_kind = kind;
    return p.error == 0 ? Fate::Dies : Fate::Fails;
  }
  const char* const failed = p.failed_kind;
  return p.rest && failed != nullptr && std::string_view(failed) == kind
             ? Fate::Fails
             : Fate::Done;
}

void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) {
    ::pause();
  }
}

/// The function that this library stands before.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

/// Whether the call is to be made; else errno says how it failed.
bool allowed(const char* kind, const std::string& path) {
  switch (fate_of(kind, path)) {
    case Fate::Done:
      return true;
    case Fate::Fails:
      errno = plan().error;
      return false;
    case Fate::Dies:
      die();
  }
  return true;
}

bool allowed_on(const char* kind, int descriptor) {
  return !plan().active || allowed(kind, path_of(descriptor));
}

bool allowed_at(const char* kind, int folder, const char* path) {
  return !plan().active || allowed(kind, path_at(folder, path));
}

/// A write of `bytes` bytes, by `write_part`, which is given how many.
template <class WritePart>
ssize_t write_or_die(int descriptor, std::size_t bytes, WritePart write_part) {
  if (plan().active) {
    switch (fate_of("write", path_of(descriptor))) {
      case Fate::Done:
        break;
      case Fate::Fails:
        errno = plan().error;
        return -1;
      case Fate::Dies:
        (void)write_part(bytes / 2);
        die();
    }
  }
  return write_part(bytes);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static auto* const real = next<decltype(write)>("write");
  return write_or_die(descriptor, count, [&](std::size_t part) {
    return real(descriptor, bytes, part);
  });
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  static auto* const real = next<decltype(writev)>("writev");
  return write_or_die(descriptor, static_cast<std::size_t>(count),
                      [&](std::size_t part) {
                        return real(descriptor, parts, static_cast<int>(part));
                      });
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  static auto* const real = next<decltype(pwrite)>("pwrite");
  return write_or_die(descriptor, count, [&](std::size_t part) {
    return real(descriptor, bytes, part, offset);
  });
}

int fsync(int descriptor) {
  static auto* const real = next<decltype(fsync)>("fsync");
  return allowed_on("fsync", descriptor) ? real(descriptor) : -1;
}

int fdatasync(int descriptor) {
  static auto* const real = next<decltype(fdatasync)>("fdatasync");
  return allowed_on("fdatasync", descriptor) ? real(descriptor) : -1;
}

int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  static auto* const real = next<decltype(fallocate)>("fallocate");
  return allowed_on("fallocate", descriptor)
             ? real(descriptor, mode, offset, bytes)
             : -1;
}

int sync_file_range(int descriptor, off64_t offset, off64_t bytes,
                    unsigned int flags) {
  static auto* const real = next<decltype(sync_file_range)>("sync_file_range");
  return allowed_on("sync_file_range", descriptor)
             ? real(descriptor, offset, bytes, flags)
             : -1;
}

int open(const char* path, int flags, ...) {
  static auto* const real = next<decltype(open)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return (flags & O_CREAT) == 0 || allowed_at("create", AT_FDCWD, path)
             ? real(path, flags, mode)
             : -1;
}

int openat(int folder, const char* path, int flags, ...) {
  static auto* const real = next<decltype(openat)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return (flags & O_CREAT) == 0 || allowed_at("create", folder, path)
             ? real(folder, path, flags, mode)
             : -1;
}

// What std::ofstream calls.
FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<decltype(fopen)>("fopen");
  return mode[0] == 'r' || allowed_at("create", AT_FDCWD, path)
             ? real(path, mode)
             : nullptr;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return allowed_at("rename", AT_FDCWD, from) ? real(from, to) : -1;
}

int renameat(int from_folder, const char* from, int to_folder,
             const char* to) noexcept {
  static auto* const real =
      next<int(int, const char*, int, const char*)>("renameat");
  return allowed_at("rename", from_folder, from)
             ? real(from_folder, from, to_folder, to)
             : -1;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return allowed_at("mkdir", AT_FDCWD, path) ? real(path, mode) : -1;
}

int rmdir(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("rmdir");
  return allowed_at("rmdir", AT_FDCWD, path) ? real(path) : -1;
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return allowed_at("unlink", AT_FDCWD, path) ? real(path) : -1;
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  return allowed_at("unlink", folder, path) ? real(folder, path, flags) : -1;
}

// What std::filesystem::remove calls.
int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  return allowed_at("unlink", AT_FDCWD, path) ? real(path) : -1;
}

}  // extern "C"

// The same under the names for offsets of 64 bits, which these are anyway.
extern "C" {
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...)
    __attribute__((alias("openat")));
FILE* fopen64(const char* path, const char* mode)
    __attribute__((alias("fopen")));
ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off_t offset)
    __attribute__((alias("pwrite")));
int fallocate64(int descriptor, int mode, off_t offset, off_t bytes)
    __attribute__((alias("fallocate")));
}
