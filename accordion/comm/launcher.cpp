// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "accordion/comm/cores.h"
#include "accordion/comm/line_prefixer.h"
#include "accordion/comm/shm/file_descriptor.h"

namespace accordion {
namespace {

using Clock = std::chrono::steady_clock;
using detail::FileDescriptor;
using detail::LinePrefixer;

// What a shell returns for a command that it cannot execute.
constexpr int kCannotExecute = 127;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "[run] " + what);
}

int free_port() {
  const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe.valid() || bind(probe.get(), generic, length) != 0 ||
      getsockname(probe.get(), generic, &length) != 0) {
    fail("cannot find a free port");
  }
  return ntohs(address.sin_port);
}

// A training step allocates and frees the same large tensors again and again.
// By default glibc maps and unmaps each, so that every step takes page faults
// for all of them; kept on the heap, in huge pages, they cost none.
constexpr const char* kHeapTunables =
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:"
    "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1";

// The launcher's environment with the variables of one rank.
std::vector<std::string> rank_environment(int rank, int num_ranks, int port,
                                          int restart) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] =
      std::to_string(num_ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(port);
  variables["TORCHELASTIC_RUN_ID"] =
      fmt::format("accordion-{}-{}", getpid(), port);
  variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restart);
  // This launcher has no agent, whatever started it may have had one.
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  // Ranks share the cores; a thread pool per rank would fight over them.
  variables.try_emplace("OMP_NUM_THREADS", "1");
  variables.try_emplace("GLIBC_TUNABLES", kHeapTunables);
  std::vector<std::string> environment;
  for (const auto& [key, value] : variables) {
    environment.push_back(key + "=" + value);
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

// The signals that the launcher handles, blocked while it lives and read from a
// descriptor.
class Signals {
 public:
  Signals() {
    sigemptyset(&handled_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&handled_, signal);
    }
    sigprocmask(SIG_BLOCK, &handled_, &before_);
    descriptor_ = FileDescriptor(signalfd(-1, &handled_, SFD_CLOEXEC));
    if (!descriptor_.valid()) {
      fail("cannot watch signals");
    }
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] int fd() const { return descriptor_.get(); }
  [[nodiscard]] signalfd_siginfo next() const {
    signalfd_siginfo info{};
    if (read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) {
      info.ssi_signo = 0;
    }
    return info;
  }
  /// The mask that a rank starts with.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t handled_{};
  sigset_t before_{};
  FileDescriptor descriptor_;
};

struct Child {
  pid_t pid = -1;
  bool running = true;
};

std::string cause_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("was ended by SIG{} ({})", sigabbrev_np(signal),
                       strsignal(signal));
  }
  if (WEXITSTATUS(status) == kCannotExecute) {
    return "exited with code 127: the program could not be started";
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Launcher {
 public:
  /// `restart` counts the launches before this one.
  Launcher(const LaunchOptions& options, int restart)
      : options_(options), restart_(restart), launcher_pid_(getpid()) {
    const int port = free_port();
    try {
      for (int rank = 0; rank < options.num_ranks; ++rank) {
        start(rank, port);
      }
    } catch (...) {
      signal_all(SIGKILL);
      throw;
    }
  }

  int run() {
    while (any_running()) {
      poll_once();
      if (deadline_ && Clock::now() >= *deadline_) {
        signal_all(SIGKILL);
        deadline_.reset();
      }
    }
    for (LinePrefixer& output : outputs_) {
      output.drain();
    }
    return exit_code_;
  }

  /// A signal asked for the end: what follows is no failure.
  [[nodiscard]] bool asked_to_end() const { return asked_to_end_; }

 private:
  void start(int rank, int port);
  [[noreturn]] void become_rank(std::vector<std::string> environment, int out,
                                int err);
  void poll_once();
  void handle_signal(const signalfd_siginfo& info);
  void reap();
  void report_failure(int rank, int status);

  [[nodiscard]] bool any_running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running; });
  }

  void signal_all(int signal) const {
    for (const Child& child : children_) {
      if (child.running) {
        kill(child.pid, signal);
      }
    }
  }

  const LaunchOptions& options_;
  const int restart_;
  const pid_t launcher_pid_;
  const CoreSet cores_ = CoreSet::of_this_thread();
  Signals signals_;
  std::vector<Child> children_;
  std::vector<LinePrefixer> outputs_;
  std::optional<Clock::time_point> deadline_;  // when SIGKILL is due
  bool asked_to_end_ = false;
  int exit_code_ = 0;
};

// A new pipe: read end, write end.
std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    fail("cannot make a pipe");
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void Launcher::start(int rank, int port) {
  auto environment = rank_environment(rank, options_.num_ranks, port, restart_);
  const bool keeps_terminal = rank == 0 && options_.rank0_keeps_terminal;
  auto out = keeps_terminal ? std::pair<FileDescriptor, FileDescriptor>()
                            : make_pipe();
  auto err = keeps_terminal ? std::pair<FileDescriptor, FileDescriptor>()
                            : make_pipe();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    fail("cannot start a rank");
  }
  if (pid == 0) {
    if (options_.bind_to_cores && cores_.count() >= options_.num_ranks) {
      cores_.part(rank, options_.num_ranks).bind_this_thread();
    }
    become_rank(std::move(environment), out.second.get(), err.second.get());
  }
  children_.push_back({.pid = pid, .running = true});
  if (!keeps_terminal) {
    const std::string prefix = fmt::format("[rank {}] ", rank);
    outputs_.emplace_back(std::move(out.first), STDOUT_FILENO, prefix);
    outputs_.emplace_back(std::move(err.first), STDERR_FILENO, prefix);
  }
}

// In the child, between fork and exec. A negative descriptor: keep the
// launcher's.
void Launcher::become_rank(std::vector<std::string> environment, int out,
                           int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher_pid_) {
    _exit(1);  // the launcher ended before the line above
  }
  sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
  if (out >= 0) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    // One terminal cannot be read by several ranks.
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
  }
  std::vector<std::string> command = options_.command;
  execvpe(command[0].c_str(), pointers(command).data(),
          pointers(environment).data());
  const std::string message = fmt::format("[run] cannot start '{}': {}\n",
                                          command[0], std::strerror(errno));
  static_cast<void>(!write(STDERR_FILENO, message.data(), message.size()));
  _exit(kCannotExecute);
}

void Launcher::poll_once() {
  std::vector<pollfd> waits = {
      {.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  for (const LinePrefixer& output : outputs_) {
    waits.push_back({.fd = output.fd(), .events = POLLIN, .revents = 0});
  }
  int wait_ms = -1;
  if (deadline_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        *deadline_ - Clock::now());
    wait_ms = std::max(1, static_cast<int>(left.count()));
  }
  poll(waits.data(), waits.size(), wait_ms);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (waits[i + 1].revents != 0) {
      outputs_[i].pump();
    }
  }
  if (waits[0].revents != 0) {
    handle_signal(signals_.next());
  }
}

void Launcher::handle_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) {
    reap();
  } else if (signal != 0) {
    // The user's wish to end: no rank has failed, and each takes its time.
    asked_to_end_ = true;
    // A terminal's Ctrl-C has reached the ranks already: same process group.
    if (info.ssi_code != SI_KERNEL) {
      signal_all(signal);
    }
  }
}

void Launcher::reap() {
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    int status = 0;
    Child& child = children_[rank];
    if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) {
      continue;
    }
    child.running = false;
    if (exit_code_ == 0 && exit_code_of(status) != 0) {
      exit_code_ = exit_code_of(status);
      if (!asked_to_end_) {
        report_failure(static_cast<int>(rank), status);
      }
      signal_all(SIGTERM);
      deadline_ = Clock::now() + options_.grace;
    }
  }
}

void Launcher::report_failure(int rank, int status) {
  // What the rank itself said about it comes first.
  for (LinePrefixer& output : outputs_) {
    pollfd source{.fd = output.fd(), .events = POLLIN, .revents = 0};
    if (source.fd >= 0 && poll(&source, 1, 0) > 0) {
      output.pump();
    }
  }
  std::fprintf(stderr, "[run] rank %d of %d failed first: it %s.%s\n", rank,
               options_.num_ranks, cause_of(status).c_str(),
               any_running() ? " Ending the other ranks." : "");
}

}  // namespace

int run_local_ranks(const LaunchOptions& options) {
  if (options.command.empty() || options.num_ranks < 1) {
    throw std::invalid_argument(fmt::format(
        "[run] {} ranks of a command of {} words: give a program and at least "
        "one rank, as in accordion run --nproc 2 -- PROGRAM ARGS",
        options.num_ranks, options.command.size()));
  }
  for (int restart = 0;; ++restart) {
    Launcher launcher(options, restart);
    const int exit_code = launcher.run();
    if (exit_code == 0 || launcher.asked_to_end() ||
        restart == options.max_restarts) {
      return exit_code;
    }
    std::fprintf(stderr, "[run] starting all %d ranks again (%d of %d)\n",
                 options.num_ranks, restart + 1, options.max_restarts);
  }
}

}  // namespace accordion
