// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "accordion/comm/cores.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

// The launcher blocks signals and writes to stdout: it runs in a process of its
// own. Arguments: ranks, shell script, then any of the words below.
const RankProgram kLauncher("launcher", [](const RankContext& c) {
  LaunchOptions options;
  options.num_ranks = std::stoi(c.arguments.at(0));
  options.command = {"sh", "-c", c.arguments.at(1)};
  options.grace = std::chrono::milliseconds(500);
  for (const std::string& word : c.arguments) {
    options.rank0_keeps_terminal |= word == "keep";
    options.bind_to_cores &= word != "unbound";
    if (word == "missing") {
      options.command = {"./no-such-program"};
    }
  }
  const int code = run_local_ranks(options);
  std::fflush(nullptr);
  std::_Exit(code);
});

RankResult launch(int num_ranks, const std::string& script,
                  const std::string& word = "") {
  return run_ranks(kLauncher, 1, {std::to_string(num_ranks), script, word})[0];
}

void expect_text(const RankResult& result, const std::string& phrase) {
  EXPECT_NE(result.output.find(phrase), std::string::npos)
      << "expected: " << phrase << "\noutput: " << result.output;
}

TEST(Launcher, RanksSeeTorchrunsVariables) {
  unsetenv("OMP_NUM_THREADS");
  const RankResult result =
      launch(3,
             "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
             "$MASTER_ADDR omp=$OMP_NUM_THREADS; test $MASTER_PORT -gt 0; "
             "test -n \"$TORCHELASTIC_RUN_ID\"");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    expect_text(result,
                "[rank " + r + "] " + r + "/3 " + r + "/3 127.0.0.1 omp=1\n");
  }
}

TEST(Launcher, KeepsAThreadCountThatIsSet) {
  setenv("OMP_NUM_THREADS", "3", 1);
  expect_text(launch(1, "echo omp=$OMP_NUM_THREADS"), "[rank 0] omp=3\n");
  unsetenv("OMP_NUM_THREADS");
}

TEST(Launcher, KeepsLargeBlocksOnTheHeapUnlessTunablesAreSet) {
  setenv("GLIBC_TUNABLES", "glibc.malloc.check=0", 1);
  expect_text(launch(1, "echo heap=$GLIBC_TUNABLES"),
              "[rank 0] heap=glibc.malloc.check=0\n");
  unsetenv("GLIBC_TUNABLES");
  expect_text(launch(1, "echo heap=$GLIBC_TUNABLES"),
              "[rank 0] heap=glibc.malloc.mmap_max=0");
}

TEST(Launcher, RanksHaveCoresOfTheirOwnWhereThereAreEnough) {
  const int cores = CoreSet::of_this_thread().count();
  const auto expect_cores = [](int ranks, int each, const std::string& word) {
    const RankResult result =
        launch(ranks, "echo $(env -u OMP_NUM_THREADS nproc) cores", word);
    for (int rank = 0; rank < ranks; ++rank) {
      expect_text(result, "[rank " + std::to_string(rank) + "] " +
                              std::to_string(each) + " cores\n");
    }
  };
  expect_cores(cores, 1, "");
  expect_cores(1, cores, "");
  expect_cores(cores + 1, cores, "");
  expect_cores(cores, cores, "unbound");
}

TEST(Launcher, LinesStayWholeAndTheLastNeedsNoNewline) {
  const RankResult result = launch(
      2, "for i in 1 2 3; do printf 'a%s' $i; printf 'b\\n'; done; printf end");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* rank : {"[rank 0] ", "[rank 1] "}) {
    expect_text(result, std::string(rank) + "a1b\n");
    expect_text(result, std::string(rank) + "a3b\n");
    expect_text(result, std::string(rank) + "end\n");
  }
}

TEST(Launcher, RankZeroMayKeepTheTerminal) {
  const RankResult result = launch(2, "printf \"from-$RANK\\n\"", "keep");
  EXPECT_TRUE(result.output.starts_with("from-0\n") ||
              result.output.find("\nfrom-0\n") != std::string::npos)
      << result.output;
  expect_text(result, "[rank 1] from-1\n");
}

TEST(Launcher, NamesTheRankThatFailedFirstAndEndsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  const RankResult result = launch(
      3, "if [ $RANK = 1 ]; then echo bad luck; exit 7; fi; exec sleep 60");
  EXPECT_EQ(result.exit_code, 7);
  expect_text(result, "[rank 1] bad luck\n");
  expect_text(result,
              "[run] rank 1 of 3 failed first: it exited with code 7. Ending "
              "the other ranks.");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Launcher, NamesTheSignalThatEndedARank) {
  const RankResult result =
      launch(2, "if [ $RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 60");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  expect_text(result, "rank 0 of 2 failed first: it was ended by SIGSEGV");
}

TEST(Launcher, KillsRanksThatIgnoreTheRequestToEnd) {
  const auto start = std::chrono::steady_clock::now();
  const RankResult result =
      launch(2,
             "if [ $RANK = 0 ]; then sleep 0.3; exit 3; fi; trap '' TERM; "
             "while true; do sleep 0.1; done");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Launcher, ReportsAProgramThatIsNotThere) {
  const RankResult result = launch(1, "", "missing");
  EXPECT_EQ(result.exit_code, 127);
  expect_text(result, "cannot start './no-such-program': No such file");
  expect_text(result, "exited with code 127: the program could not be started");
}

// The script tells the test the launcher's pid (its parent) through a file.
class LauncherSignals : public ::testing::Test {
 protected:
  LauncherSignals()
      : path_(::testing::TempDir() + "launcher_test_" +
              std::to_string(getpid())) {
    std::remove(path_.c_str());
  }
  ~LauncherSignals() override { std::remove(path_.c_str()); }

  // Two pids, of the launcher and of its rank 1, once the ranks are ready.
  std::pair<pid_t, pid_t> wait_for_pids() const {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      std::ifstream file(path_);
      pid_t launcher = 0;
      pid_t rank = 0;
      if (file >> launcher >> rank) {
        return {launcher, rank};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {0, 0};
  }
  std::string report_pids() const {
    return "if [ $RANK = 1 ]; then echo $PPID $$ > " + path_ + "; fi; ";
  }

  const std::string path_;
};

TEST_F(LauncherSignals, ArePassedOnToEveryRank) {
  RankResult result;
  std::thread launcher([&] {
    result = launch(2, "trap 'echo got it; exit 0' TERM; " + report_pids() +
                           "while true; do sleep 0.05; done");
  });
  const auto [pid, rank] = wait_for_pids();
  ASSERT_GT(pid, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(pid, SIGTERM);
  launcher.join();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_text(result, "[rank 0] got it\n");
  expect_text(result, "[rank 1] got it\n");
  EXPECT_EQ(result.output.find("failed first"), std::string::npos);
}

TEST_F(LauncherSignals, RanksDieWithTheLauncher) {
  RankResult result;
  std::thread launcher(
      [&] { result = launch(2, report_pids() + "exec sleep 60"); });
  const auto [pid, rank] = wait_for_pids();
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  launcher.join();
  EXPECT_EQ(result.signal, SIGKILL);
  bool gone = false;
  for (int attempt = 0; attempt < 500 && !gone; ++attempt) {
    // A zombie waits for init, but no longer runs.
    std::ifstream stat("/proc/" + std::to_string(rank) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    gone = !(stat >> id >> name >> state) || state == "Z" || state == "X";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone) << "rank 1 (pid " << rank << ") still runs";
}

TEST(Launcher, WithoutACommandIsAnError) {
  EXPECT_NE(message_of([] {
              run_local_ranks({});
            }).find("give a program and at least one rank"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
