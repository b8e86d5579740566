// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/rank_harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace accordion::testing {
namespace {

using Clock = std::chrono::steady_clock;

// argv of a rank: PROGRAM, kRankFlag, program name, session, arguments…
constexpr const char* kRankFlag = "--run-as-rank";

std::map<std::string, RankBody>& programs() {
  static std::map<std::string, RankBody> all;
  return all;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(),
                          std::string("[rank_harness] ") + what);
}

// A port that nobody listens on now; the kernel does not hand it out again
// soon.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, generic, length) != 0 ||
      getsockname(fd, generic, &length) != 0) {
    fail("cannot find a free port");
  }
  close(fd);
  return ntohs(address.sin_port);
}

std::string unique_session() {
  static std::atomic<int> launches{0};
  return "test-" + std::to_string(getpid()) + "-" +
         std::to_string(launches.fetch_add(1));
}

// This process's environment, with the variables that torchrun sets replaced.
std::vector<std::string> rank_environment(int rank, int world_size, int port,
                                          const std::string& session) {
  const std::map<std::string, std::string> ours = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(world_size)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {"TORCHELASTIC_RUN_ID", session},
  };
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!ours.contains(text.substr(0, text.find('=')))) {
      environment.push_back(text);
    }
  }
  for (const auto& [key, value] : ours) {
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

// One running rank: its process and the read end of its output.
struct Child {
  pid_t pid = -1;
  int process = -1;  // pidfd; -1 once reaped
  int output = -1;
};

Child spawn_rank(std::vector<std::string> argv,
                 std::vector<std::string> environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    fail("cannot make a pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  Child child;
  const int error =
      posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr,
                  pointers(argv).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    errno = error;
    fail("cannot start a rank");
  }
  // Not pidfd_open(): the header lacks extern "C" in glibc 2.36.
  child.process = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
  child.output = ends[0];
  fcntl(child.output, F_SETFL, O_NONBLOCK);
  return child;
}

struct Outcome {
  std::vector<RankResult> results;
  std::optional<int> first_failed;
  bool timed_out = false;
};

// Ends and reaps whatever still runs when it goes out of scope.
class Launch {
 public:
  explicit Launch(int world_size) {
    outcome_.results.resize(static_cast<std::size_t>(world_size));
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() {
    kill_all();
    for (const Child& child : children_) {
      if (child.process >= 0) {
        waitpid(child.pid, nullptr, 0);
        close(child.process);
      }
      close(child.output);
    }
  }

  void add(Child child) { children_.push_back(child); }

  Outcome run(std::chrono::seconds timeout, std::chrono::milliseconds grace) {
    auto deadline = Clock::now() + timeout;
    bool ending = false;
    while (num_running() > 0) {
      poll_once(deadline);
      if (outcome_.first_failed && !ending) {
        ending = true;
        deadline = std::min(deadline, Clock::now() + grace);
      }
      if (Clock::now() >= deadline) {
        outcome_.timed_out |= !outcome_.first_failed;
        kill_all();
        deadline = Clock::time_point::max();
      }
    }
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] std::size_t num_running() const {
    std::size_t count = 0;
    for (const Child& child : children_) {
      count += child.process >= 0 ? 1 : 0;
    }
    return count;
  }

  void kill_all() const {
    for (const Child& child : children_) {
      if (child.process >= 0) {
        kill(child.pid, SIGKILL);
      }
    }
  }

  void drain(std::size_t rank) {
    char chunk[4096];
    ssize_t count = 0;
    while ((count = read(children_[rank].output, chunk, sizeof(chunk))) > 0) {
      outcome_.results[rank].output.append(chunk,
                                           static_cast<std::size_t>(count));
    }
  }

  void reap(std::size_t rank) {
    Child& child = children_[rank];
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) {
      return;
    }
    close(child.process);
    child.process = -1;
    drain(rank);
    RankResult& result = outcome_.results[rank];
    result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (result.exit_code != 0 && !outcome_.first_failed) {
      outcome_.first_failed = static_cast<int>(rank);
    }
  }

  void poll_once(Clock::time_point deadline) {
    std::vector<pollfd> waits;
    for (const Child& child : children_) {
      // A negative descriptor is skipped by poll. The output of a rank that
      // has ended was read when it was reaped.
      const bool running = child.process >= 0;
      waits.push_back({.fd = child.process, .events = POLLIN, .revents = 0});
      waits.push_back(
          {.fd = running ? child.output : -1, .events = POLLIN, .revents = 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::min(deadline, Clock::now() + std::chrono::milliseconds(200)) -
        Clock::now());
    poll(waits.data(), waits.size(),
         std::max(1, static_cast<int>(left.count())));
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (waits[2 * rank + 1].revents != 0) {
        drain(rank);
      }
      if (waits[2 * rank].revents != 0) {
        reap(rank);
      }
    }
  }

  std::vector<Child> children_;
  Outcome outcome_;
};

Outcome launch(const RankProgram& program, int world_size,
               const std::vector<std::string>& arguments,
               std::chrono::seconds timeout, std::chrono::milliseconds grace) {
  const std::string session = unique_session();
  const int port = free_port();
  std::vector<std::string> argv = {"rank", kRankFlag, program.name(), session};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Launch ranks(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.add(
        spawn_rank(argv, rank_environment(rank, world_size, port, session)));
  }
  return ranks.run(timeout, grace);
}

std::string describe(const RankResult& result) {
  std::ostringstream text;
  if (result.signal != 0) {
    text << "was ended by signal " << result.signal << " ("
         << strsignal(result.signal) << ")";
  } else {
    text << "exited with " << result.exit_code;
  }
  text << "; its output:\n" << result.output;
  return text.str();
}

int run_body(const RankBody& body, const RankContext& context) {
  try {
    body(context);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d threw: %s\n", context.rank, error.what());
    return 1;
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace

RankProgram::RankProgram(std::string name, RankBody body)
    : name_(std::move(name)) {
  if (!programs().emplace(name_, std::move(body)).second) {
    throw std::logic_error("[rank_harness] two rank programs are named '" +
                           name_ + "'");
  }
}

std::vector<RankResult> run_ranks(const RankProgram& program, int world_size,
                                  std::vector<std::string> arguments,
                                  std::chrono::seconds timeout,
                                  std::chrono::milliseconds grace) {
  return launch(program, world_size, arguments, timeout, grace).results;
}

void expect_ranks_pass(const RankProgram& program, int world_size,
                       std::vector<std::string> arguments,
                       std::chrono::seconds timeout) {
  const Outcome outcome = launch(program, world_size, arguments, timeout,
                                 std::chrono::milliseconds(2000));
  if (outcome.timed_out) {
    for (std::size_t rank = 0; rank < outcome.results.size(); ++rank) {
      ADD_FAILURE() << "program '" << program.name() << "' took more than "
                    << timeout.count() << " s: rank " << rank << " of "
                    << world_size << " " << describe(outcome.results[rank]);
    }
  } else if (outcome.first_failed) {
    const auto rank = static_cast<std::size_t>(*outcome.first_failed);
    ADD_FAILURE() << "program '" << program.name() << "': rank " << rank
                  << " of " << world_size << " failed first: it "
                  << describe(outcome.results[rank]);
  }
}

bool run_as_rank(int argc, char** argv, int& exit_code) {
  if (argc < 4 || std::string_view(argv[1]) != kRankFlag) {
    return false;
  }
  // A rank must not outlive the test that started it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto program = programs().find(argv[2]);
  if (program == programs().end()) {
    std::fprintf(stderr, "[rank_harness] no rank program is named '%s'\n",
                 argv[2]);
    exit_code = 2;
    return true;
  }
  RankContext context;
  context.rank = std::atoi(std::getenv("RANK"));
  context.world_size = std::atoi(std::getenv("WORLD_SIZE"));
  context.session = argv[3];
  context.arguments.assign(argv + 4, argv + argc);
  exit_code = run_body(program->second, context);
  return true;
}

}  // namespace accordion::testing
