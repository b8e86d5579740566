// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace accordion {
namespace {

using Lookup = Rendezvous::Lookup;

constexpr int kDefaultPort = 29500;

// Reads the variables of one launcher and speaks of them in errors.
class Variables {
 public:
  Variables(const Lookup& lookup, std::string_view launcher)
      : lookup_(lookup), launcher_(launcher) {}

  // An empty variable counts as unset.
  [[nodiscard]] std::optional<std::string> text(const char* variable) const {
    const char* value = lookup_(variable);
    return value == nullptr || *value == '\0'
               ? std::nullopt
               : std::optional<std::string>(value);
  }

  [[nodiscard]] std::string required_text(const char* variable,
                                          std::string_view hint) const {
    if (auto value = text(variable)) {
      return *std::move(value);
    }
    throw std::invalid_argument(
        fmt::format("[rendezvous] {} is not set, though other variables of {} "
                    "are. {}",
                    variable, launcher_, hint));
  }

  // A whole number in [least, most].
  [[nodiscard]] int number(const char* variable, int least, int most) const {
    return parse(variable,
                 required_text(variable,
                               "Start the program through the "
                               "launcher, or set all or none."),
                 least, most);
  }

  [[nodiscard]] int number_or(const char* variable, int fallback, int least,
                              int most) const {
    const auto value = text(variable);
    return value ? parse(variable, *value, least, most) : fallback;
  }

 private:
  [[nodiscard]] static int parse(const char* variable, const std::string& value,
                                 int least, int most) {
    int number = 0;
    const char* end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || rest != end || number < least ||
        number > most) {
      throw std::invalid_argument(
          fmt::format("[rendezvous] {} is '{}'; expected a whole number from "
                      "{} to {}",
                      variable, value, least, most));
    }
    return number;
  }

  const Lookup& lookup_;
  std::string_view launcher_;
};

constexpr int kMany = 1 << 24;  // more ranks than any job has

Rendezvous from_torchrun(const Lookup& lookup) {
  const Variables variables(lookup, "torchrun");
  Rendezvous result;
  result.launcher = "torchrun";
  result.world_size = variables.number("WORLD_SIZE", 1, kMany);
  result.rank = variables.number("RANK", 0, result.world_size - 1);
  result.local_world_size =
      variables.number("LOCAL_WORLD_SIZE", 1, result.world_size);
  result.local_rank =
      variables.number("LOCAL_RANK", 0, result.local_world_size - 1);
  result.address = variables.required_text(
      "MASTER_ADDR", "Set it to the host name of rank 0.");
  result.port = variables.number("MASTER_PORT", 1, 65535);
  result.run_id = variables.text("TORCHELASTIC_RUN_ID").value_or("");
  // The agent's store outlives the ranks of the attempt before.
  result.restart_count =
      variables.number_or("TORCHELASTIC_RESTART_COUNT", 0, 0, kMany);
  if (result.restart_count > 0) {
    result.run_id += fmt::format(" restart {}", result.restart_count);
  }
  result.launcher_serves_store =
      variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return result;
}

Rendezvous from_open_mpi(const Lookup& lookup) {
  const Variables variables(lookup, "Open MPI");
  Rendezvous result;
  result.launcher = "Open MPI";
  result.world_size = variables.number("OMPI_COMM_WORLD_SIZE", 1, kMany);
  result.rank =
      variables.number("OMPI_COMM_WORLD_RANK", 0, result.world_size - 1);
  result.local_world_size =
      variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, result.world_size);
  result.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0,
                                       result.local_world_size - 1);
  if (result.local_world_size < result.world_size) {
    result.address = variables.required_text(
        "MASTER_ADDR",
        "Give the host name of rank 0: mpirun -x MASTER_ADDR=HOST …");
  } else {
    result.address = variables.text("MASTER_ADDR").value_or(result.address);
  }
  result.port = variables.number_or("MASTER_PORT", kDefaultPort, 1, 65535);
  result.run_id =
      variables.text("PMIX_NAMESPACE")
          .value_or(variables.text("OMPI_MCA_ess_base_jobid").value_or(""));
  return result;
}

// The first host of a Slurm node list: "gpu[03-07,12],login" is "gpu03".
std::string first_host(const std::string& nodes) {
  const std::size_t end = nodes.find_first_of(",[");
  if (end == std::string::npos || nodes[end] == ',') {
    return nodes.substr(0, end);
  }
  const std::size_t number_end = nodes.find_first_of("-,]", end);
  return nodes.substr(0, end) + nodes.substr(end + 1, number_end - end - 1);
}

// Tasks on node `node` of a Slurm list of counts: "2(x3),1" is 2, 2, 2, 1.
int tasks_on_node(const std::string& counts, int node) {
  const char* at = counts.data();
  const char* end = at + counts.size();
  while (at < end) {
    int tasks = 0;
    int nodes = 1;
    at = std::from_chars(at, end, tasks).ptr;
    if (end - at > 2 && *at == '(') {
      at = std::from_chars(at + 2, end, nodes).ptr + 1;
    }
    if (node < nodes) {
      return tasks;
    }
    node -= nodes;
    if (at >= end || *at != ',') {
      break;
    }
    ++at;
  }
  return 0;
}

// Jobs that share a host get different ports; all ranks of a job the same.
int port_of_job(int job) {
  return 20000 + job % 10000;
}

Rendezvous from_slurm(const Lookup& lookup) {
  const Variables variables(lookup, "Slurm");
  Rendezvous result;
  result.launcher = "Slurm";
  result.world_size = variables.number("SLURM_STEP_NUM_TASKS", 1, kMany);
  result.rank = variables.number("SLURM_PROCID", 0, result.world_size - 1);
  const std::string counts =
      variables.required_text("SLURM_STEP_TASKS_PER_NODE", "srun sets it.");
  const int node = variables.number("SLURM_NODEID", 0, kMany);
  result.local_world_size = tasks_on_node(counts, node);
  if (result.local_world_size < 1 ||
      result.local_world_size > result.world_size) {
    throw std::invalid_argument(
        fmt::format("[rendezvous] SLURM_STEP_TASKS_PER_NODE is '{}', which "
                    "gives no number of tasks for SLURM_NODEID {}",
                    counts, node));
  }
  result.local_rank =
      variables.number("SLURM_LOCALID", 0, result.local_world_size - 1);
  const auto address = variables.text("MASTER_ADDR");
  result.address = address ? *address
                           : first_host(variables.required_text(
                                 "SLURM_STEP_NODELIST", "srun sets it."));
  const std::string job =
      variables.required_text("SLURM_JOB_ID", "srun sets it.");
  result.port = variables.number_or(
      "MASTER_PORT",
      port_of_job(variables.number("SLURM_JOB_ID", 0, 2147483647)), 1, 65535);
  result.run_id =
      job + "." + variables.required_text("SLURM_STEP_ID", "srun sets it.");
  return result;
}

Rendezvous from_launcher(const Lookup& lookup) {
  const auto is_set = [&](const char* variable) {
    const char* value = lookup(variable);
    return value != nullptr && *value != '\0';
  };
  if (is_set("RANK") || is_set("WORLD_SIZE")) {
    return from_torchrun(lookup);
  }
  if (is_set("OMPI_COMM_WORLD_SIZE")) {
    return from_open_mpi(lookup);
  }
  // A batch script has a job but no step: what it runs without srun is alone.
  if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID")) {
    return from_slurm(lookup);
  }
  return Rendezvous{};
}

}  // namespace

Rendezvous Rendezvous::from_variables(const Lookup& lookup) {
  Rendezvous result = from_launcher(lookup);
  const char* interface = lookup("GLOO_SOCKET_IFNAME");
  result.network_interface = interface == nullptr ? "" : interface;
  return result;
}

Rendezvous Rendezvous::from_environment() {
  return from_variables(
      [](const char* variable) { return std::getenv(variable); });
}

}  // namespace accordion
