// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/rendezvous.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/comm/collective_checks.h"

namespace accordion::testing {
namespace {

using Variables = std::map<std::string, std::string>;

Rendezvous read(const Variables& variables) {
  return Rendezvous::from_variables([&](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  });
}

Variables changed(Variables variables, const std::string& name,
                  const std::string& value) {
  variables[name] = value;
  return variables;
}

const Variables kTorchrun = {
    {"RANK", "5"},
    {"WORLD_SIZE", "8"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "gpu01"},
    {"MASTER_PORT", "29501"},
    {"TORCHELASTIC_RUN_ID", "run-7"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
};

const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "prterun-1"},
};

const Variables kSlurm = {
    {"SLURM_PROCID", "6"},
    {"SLURM_STEP_NUM_TASKS", "7"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "3"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
    {"SLURM_STEP_NODELIST", "gpu[03-05,12]"},
    {"SLURM_JOB_ID", "123456"},
    {"SLURM_STEP_ID", "2"},
};

TEST(Rendezvous, WithoutALauncherIsAWorldOfOne) {
  const Rendezvous alone = read({});
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_EQ(alone.rank, 0);
  EXPECT_EQ(alone.launcher, "none");
  EXPECT_FALSE(alone.launcher_serves_store);
}

TEST(Rendezvous, ReadsTorchrun) {
  const Rendezvous us = read(kTorchrun);
  EXPECT_EQ(us.launcher, "torchrun");
  EXPECT_EQ(us.rank, 5);
  EXPECT_EQ(us.world_size, 8);
  EXPECT_EQ(us.local_rank, 1);
  EXPECT_EQ(us.local_world_size, 4);
  EXPECT_EQ(us.address, "gpu01");
  EXPECT_EQ(us.port, 29501);
  EXPECT_EQ(us.run_id, "run-7");
  EXPECT_TRUE(us.launcher_serves_store);
  EXPECT_FALSE(read(changed(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"))
                   .launcher_serves_store);
}

TEST(Rendezvous, ReadsOpenMpiOnOneHost) {
  const Rendezvous us = read(kOpenMpi);
  EXPECT_EQ(us.launcher, "Open MPI");
  EXPECT_EQ(us.rank, 3);
  EXPECT_EQ(us.world_size, 4);
  EXPECT_EQ(us.local_rank, 3);
  EXPECT_EQ(us.local_world_size, 4);
  EXPECT_EQ(us.address, "127.0.0.1");
  EXPECT_EQ(us.port, 29500);
  EXPECT_EQ(us.run_id, "prterun-1");
}

TEST(Rendezvous, OpenMpiOnSeveralHostsNeedsAnAddress) {
  Variables variables = changed(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  EXPECT_NE(
      message_of([&] { read(variables); }).find("mpirun -x MASTER_ADDR=HOST"),
      std::string::npos);
  variables["MASTER_ADDR"] = "node1";
  variables["MASTER_PORT"] = "4444";
  EXPECT_EQ(read(variables).address, "node1");
  EXPECT_EQ(read(variables).port, 4444);
}

TEST(Rendezvous, ReadsSlurm) {
  const Rendezvous us = read(kSlurm);
  EXPECT_EQ(us.launcher, "Slurm");
  EXPECT_EQ(us.rank, 6);
  EXPECT_EQ(us.world_size, 7);
  EXPECT_EQ(us.local_rank, 0);
  EXPECT_EQ(us.local_world_size, 1);
  EXPECT_EQ(us.address, "gpu03");
  EXPECT_EQ(us.port, 20000 + 3456);
  EXPECT_EQ(us.run_id, "123456.2");
  EXPECT_EQ(
      read(changed(kSlurm, "SLURM_STEP_NODELIST", "login,gpu[1-3]")).address,
      "login");
  EXPECT_EQ(read(changed(kSlurm, "SLURM_STEP_NODELIST", "one")).address, "one");
  EXPECT_EQ(read(changed(kSlurm, "SLURM_NODEID", "1")).local_world_size, 2);
}

// The agent's store still holds what the attempt before wrote.
TEST(Rendezvous, EachRestartOfTorchrunIsARunOfItsOwn) {
  const auto run_of = [](const char* restarts) {
    return read(changed(kTorchrun, "TORCHELASTIC_RESTART_COUNT", restarts))
        .run_id;
  };
  EXPECT_EQ(run_of("0"), "run-7");
  EXPECT_EQ(run_of("2"), "run-7 restart 2");
}

TEST(Rendezvous, EmptyVariablesCountAsUnset) {
  EXPECT_EQ(read({{"RANK", ""}, {"WORLD_SIZE", ""}}).launcher, "none");
  EXPECT_EQ(read(changed(kSlurm, "RANK", "")).launcher, "Slurm");
}

TEST(Rendezvous, SlurmBatchScriptIsNoStep) {
  Variables variables = kSlurm;
  variables.erase("SLURM_STEP_ID");
  EXPECT_EQ(read(variables).world_size, 1);
}

TEST(Rendezvous, MissingVariableIsNamed) {
  for (const auto& [name, value] : kTorchrun) {
    if (name.starts_with("TORCHELASTIC")) {
      continue;
    }
    Variables variables = kTorchrun;
    variables.erase(name);
    EXPECT_NE(message_of([&] { read(variables); }).find(name + " is not set"),
              std::string::npos)
        << name;
  }
}

TEST(Rendezvous, WrongNumberIsQuoted) {
  const auto message = [](const char* name, const char* value) {
    return message_of([&] { read(changed(kTorchrun, name, value)); });
  };
  EXPECT_NE(message("RANK", "8")
                .find("RANK is '8'; expected a whole number from 0 to 7"),
            std::string::npos);
  EXPECT_NE(message("RANK", "two").find("RANK is 'two'"), std::string::npos);
  EXPECT_NE(message("MASTER_PORT", "70000").find("MASTER_PORT is '70000'"),
            std::string::npos);
  EXPECT_NE(message("WORLD_SIZE", "-1").find("WORLD_SIZE is '-1'"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              read(changed(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "many"));
            }).find("SLURM_STEP_TASKS_PER_NODE is 'many'"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
