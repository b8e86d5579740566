// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_folder.h"

#include <array>
#include <cmath>

#include <sys/inotify.h>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace accordion::testing {
namespace {

namespace fs = std::filesystem;

/// An empty checkpoint, which is complete nevertheless.
void commit_empty(const fs::path& path) {
  begin_checkpoint(path);
  commit_checkpoint(path, CheckpointIndex());
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const StepCheckpoint& checkpoint : complete_checkpoints(folder)) {
    EXPECT_EQ(checkpoint.path, folder / step_folder_name(checkpoint.step));
    steps.push_back(checkpoint.step);
  }
  return steps;
}

/// What remains of the checkpoints of steps 10, 20, … 60.
std::vector<std::int64_t> kept_by(const KeepRule& rule) {
  const TemporaryFolder folder;
  for (const int step : {10, 20, 30, 40, 50, 60}) {
    commit_empty(folder.path() / step_folder_name(step));
  }
  remove_old_checkpoints(folder.path(), rule);
  std::vector<std::int64_t> steps = steps_in(folder.path());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}),
            static_cast<std::ptrdiff_t>(steps.size()));
  return steps;
}

/// What happens to the names in a folder, in order.
class NameEvents {
 public:
  explicit NameEvents(const fs::path& folder)
      : descriptor_(::inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(::inotify_add_watch(descriptor_, folder.c_str(),
                                  IN_CREATE | IN_DELETE | IN_MOVE),
              0);
  }
  ~NameEvents() { ::close(descriptor_); }
  NameEvents(const NameEvents&) = delete;
  NameEvents& operator=(const NameEvents&) = delete;

  /// "+NAME" for one that appeared, "-NAME" for one that went.
  [[nodiscard]] std::vector<std::string> read() const {
    alignas(inotify_event) std::array<char, 4096> buffer{};
    const ssize_t bytes = ::read(descriptor_, buffer.data(), buffer.size());
    std::vector<std::string> events;
    for (ssize_t at = 0; at < bytes;) {
      const auto* event =
          reinterpret_cast<const inotify_event*>(buffer.data() + at);
      const bool appeared = (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0;
      events.push_back((appeared ? "+" : "-") + std::string(event->name));
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return events;
  }

 private:
  int descriptor_;
};

using Events = std::vector<std::string>;
using Steps = std::vector<std::int64_t>;

TEST(CheckpointFolder, NamesSortAsTheirNumbers) {
  EXPECT_EQ(step_folder_name(0), "step-00000000");
  EXPECT_EQ(step_folder_name(1000), "step-00001000");
  EXPECT_EQ(step_folder_name(123'456'789), "step-123456789");
  EXPECT_EQ(shard_file_name(3, 16), "shard-00003-of-00016.safetensors");
  EXPECT_EQ(index_file("a"), fs::path("a/index.json"));
  EXPECT_EQ(unfinished_folder("a/b"), fs::path("a/b.unfinished"));
}

TEST(CheckpointFolder, ACheckpointAppearsWhenItIsComplete) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "new" / "deep" / "step-00000001";
  const std::vector<CountedTensor> tensors = {{"model/a", {3, 5}, 10}};
  begin_checkpoint(path);
  const auto index = write_shards(unfinished_folder(path), tensors, 3);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(steps_in(path.parent_path()).empty());
  commit_checkpoint(path, index);
  EXPECT_FALSE(fs::exists(unfinished_folder(path)));
  EXPECT_EQ(steps_in(path.parent_path()), Steps{1});
  CheckpointReader reader(path);
  std::vector<std::int32_t> got(15);
  reader.read("model/a", 0, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, tensors[0].elements(0, 15));
}

TEST(CheckpointFolder, TheNameAppearsOnceAndLast) {
  const TemporaryFolder folder;
  const NameEvents events(folder.path());
  const fs::path path = folder.path() / "a";
  begin_checkpoint(path);
  const NameEvents files(unfinished_folder(path));
  commit_checkpoint(path, CheckpointIndex());
  EXPECT_EQ(events.read(), (Events{"+a.unfinished", "-a.unfinished", "+a"}));
  EXPECT_EQ(files.read(), Events{"+index.json"});
}

TEST(CheckpointFolder, ASlashAtTheEndChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "a").string();
  EXPECT_EQ(unfinished_folder(path + "/"), fs::path(path + ".unfinished"));
  commit_empty(path + "/");
  EXPECT_EQ(CheckpointReader(path).index().world_size, 1);
  expect_checkpoint_error([&] { begin_checkpoint(path + "/"); },
                          {"exists already"});
}

TEST(CheckpointFolder, ACheckpointIsNeverOverwritten) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  commit_empty(path);
  expect_checkpoint_error([&] { begin_checkpoint(path); },
                          {path.string(), "exists already", "never overwrit"});
  (void)folder.write("file", "");
  expect_checkpoint_error([&] { begin_checkpoint(folder.path() / "file"); },
                          {"exists already"});
  fs::create_symlink("nowhere", folder.path() / "link");
  expect_checkpoint_error([&] { begin_checkpoint(folder.path() / "link"); },
                          {"exists already"});
}

// Between begin and commit of one process, another one was faster.
TEST(CheckpointFolder, CommitDoesNotOverwriteEither) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  begin_checkpoint(path);
  fs::create_directory(path);
  (void)folder.write("a/index.json", "another's");
  expect_checkpoint_error([&] { commit_checkpoint(path, CheckpointIndex()); },
                          {"cannot be renamed"});
  EXPECT_EQ(fs::file_size(index_file(path)), 9U);
}

TEST(CheckpointFolder, LeftoversOfAnEarlierAttemptAreRemoved) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  begin_checkpoint(path);
  std::ofstream(unfinished_folder(path) / "shard-00007-of-00008.safetensors");
  std::ofstream(index_file(unfinished_folder(path))) << "half of it";
  begin_checkpoint(path);
  EXPECT_TRUE(fs::is_empty(unfinished_folder(path)));
  commit_checkpoint(path, CheckpointIndex());
  EXPECT_TRUE(CheckpointReader(path).index().files.empty());
}

// Below a file, and in /proc, not even root may make a folder.
TEST(CheckpointFolder, NamesAFolderThatCannotBeMade) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  for (const fs::path& path : {file / "a", fs::path("/proc/none/a")}) {
    expect_checkpoint_error([&] { begin_checkpoint(path); },
                            {path.parent_path().string(), "cannot be made",
                             "Check the permissions"});
  }
}

TEST(CheckpointFolder, WhatNoReaderWouldAcceptIsNotCommitted) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  begin_checkpoint(path);
  CheckpointIndex twice;
  twice.files = {{"a", 1, {0}}, {"a", 1, {0}}};
  CheckpointIndex incomplete;
  incomplete.tensors["model/w"] = {"F32", {2}, {}};
  CheckpointIndex infinite;
  infinite.values = {{"x", HUGE_VAL}};
  for (const CheckpointIndex& index : {twice, incomplete, infinite}) {
    expect_checkpoint_error([&] { commit_checkpoint(path, index); }, {});
    EXPECT_FALSE(fs::exists(path));
  }
  commit_checkpoint(path, CheckpointIndex());
}

TEST(CompleteCheckpoints, AreSortedByStep) {
  const TemporaryFolder folder;
  for (const std::int64_t step :
       {std::int64_t{300}, std::int64_t{20}, std::int64_t{123'456'789}}) {
    commit_empty(folder.path() / step_folder_name(step));
  }
  EXPECT_EQ(steps_in(folder.path()), (Steps{20, 300, 123'456'789}));
  EXPECT_TRUE(steps_in(folder.path() / "none").empty());
}

TEST(CompleteCheckpoints, AreOnlyThoseOfTheirNamesWithAnIndex) {
  const TemporaryFolder folder;
  for (const char* name :
       {"step-00000001", "step-00000002.unfinished", "step-00000003.removed",
        "step-4", "step-0000000x", "step-", "step--0000005", "step-+0000006",
        "step-99999999999999999999", "Step-00000007", "other"}) {
    fs::create_directory(folder.path() / name);
    (void)folder.write(std::string(name) + "/index.json", "{}");
  }
  fs::create_directory(folder.path() / "step-00000008");  // without an index
  (void)folder.write("step-00000009", "a file");
  EXPECT_EQ(steps_in(folder.path()), Steps{1});
}

TEST(PointLatest, HoldsTheNameOfTheNewest) {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) {
    point_latest(folder.path(), step_folder_name(step));
    std::string line;
    std::ifstream file(folder.path() / "latest");
    std::getline(file, line);
    EXPECT_EQ(line, step_folder_name(step));
  }
}

TEST(RemoveOldCheckpoints, KeepsTheNewest) {
  EXPECT_EQ(kept_by({.newest = 1}), Steps{60});
  EXPECT_EQ(kept_by({.newest = 2}), (Steps{50, 60}));
  EXPECT_EQ(kept_by({.newest = 6}), (Steps{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(kept_by({.newest = 9}), (Steps{10, 20, 30, 40, 50, 60}));
}

TEST(RemoveOldCheckpoints, KeepsAllWithNewest0) {
  EXPECT_EQ(kept_by({.newest = 0}), (Steps{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(kept_by({.newest = 0, .every = 30}),
            (Steps{10, 20, 30, 40, 50, 60}));
}

TEST(RemoveOldCheckpoints, KeepsThoseOfStepsThatEveryDivides) {
  EXPECT_EQ(kept_by({.newest = 1, .every = 20}), (Steps{20, 40, 60}));
  EXPECT_EQ(kept_by({.newest = 2, .every = 30}), (Steps{30, 50, 60}));
  EXPECT_EQ(kept_by({.newest = 1, .every = 7}), Steps{60});
}

// A folder that is half removed has never the name of one that is complete.
TEST(RemoveOldCheckpoints, RenamesAFolderBeforeItIsEmptied) {
  const TemporaryFolder folder;
  commit_empty(folder.path() / step_folder_name(1));
  commit_empty(folder.path() / step_folder_name(2));
  const NameEvents events(folder.path());
  remove_old_checkpoints(folder.path(), {.newest = 1});
  EXPECT_EQ(events.read(), (Events{"-step-00000001", "+step-00000001.removed",
                                   "-step-00000001.removed"}));
}

TEST(RemoveOldCheckpoints, FinishesWhatAKilledProcessBegan) {
  for (const KeepRule& rule : {KeepRule{.newest = 1}, KeepRule{.newest = 0}}) {
    const TemporaryFolder folder;
    commit_empty(folder.path() / step_folder_name(2));
    fs::create_directory(folder.path() / "step-00000001.removed");
    (void)folder.write("step-00000001.removed/shard", "x");
    remove_old_checkpoints(folder.path(), rule);
    EXPECT_FALSE(fs::exists(folder.path() / "step-00000001.removed"));
    EXPECT_EQ(steps_in(folder.path()), Steps{2});
  }
}

TEST(RemoveOldCheckpoints, TouchesNothingElse) {
  const TemporaryFolder folder;
  commit_empty(folder.path() / step_folder_name(1));
  commit_empty(folder.path() / step_folder_name(2));
  for (const char* name : {"latest", "notes.removed", "step-1.removed",
                           "step-00000000.unfinished"}) {
    (void)folder.write(name, "mine");
  }
  fs::create_directory(folder.path() / "step-00000000");  // without an index
  remove_old_checkpoints(folder.path(), {.newest = 1});
  EXPECT_EQ(steps_in(folder.path()), Steps{2});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 6);
  remove_old_checkpoints(folder.path() / "none", {.newest = 1});
}

}  // namespace
}  // namespace accordion::testing
