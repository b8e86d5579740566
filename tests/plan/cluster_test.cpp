// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/cluster.h"

#include <gtest/gtest.h>

#include "tests/plan/expect_message.h"

namespace accordion::plan {
namespace {

using testing::expect_message;

TEST(Cluster, OneHost) {
  const Cluster cluster = parse_cluster("8xH100");
  EXPECT_EQ(cluster.gpu.name, "H100-80GB");
  EXPECT_EQ(cluster.num_hosts, 1);
  EXPECT_EQ(cluster.num_gpus(), 8);
}

TEST(Cluster, HostsWithTheNetworkOfTheirGeneration) {
  const Cluster cluster = parse_cluster("16x8xH100-IB");
  EXPECT_EQ(cluster.num_gpus(), 128);
  EXPECT_EQ(cluster.between.name, "IB-400");
  EXPECT_EQ(parse_cluster("2x8xA100-40GB-IB").between.name, "IB-200");
}

TEST(Cluster, DashesOfAGpuAreNotThoseOfALink) {
  const Cluster cluster = parse_cluster("4x8xa100_40gb-Ethernet-100");
  EXPECT_EQ(cluster.gpu.name, "A100-40GB");
  EXPECT_EQ(cluster.between.name, "Ethernet-100");
}

TEST(Cluster, GpusAreKnownByTheirUsualNames) {
  EXPECT_EQ(find_gpu("NVIDIA A100-SXM4-80GB").name, "A100-80GB");
  EXPECT_EQ(find_gpu("h100_80gb").name, "H100-80GB");
  EXPECT_EQ(find_gpu("RTX 4090").name, "RTX-4090");
}

TEST(Cluster, ErrorsNameTheNearest) {
  expect_message([] { parse_cluster("8xH10"); },
                 {"'H10'", "nearest is 'H100-80GB'"});
  expect_message([] { parse_cluster("2x8xH100-IB-40"); },
                 {"'IB-40'", "nearest is 'IB-400'"});
  expect_message([] { parse_cluster("H100"); }, {"no number of GPUs"});
  expect_message([] { parse_cluster("-8xH100"); }, {"-8 GPUs", "at least 1"});
  expect_message([] { usual_cluster(find_gpu("H100"), 0); }, {"num_gpus is 0"});
}

TEST(Cluster, FileNamesAGpuAndChangesItsRates) {
  const Cluster cluster = cluster_from_toml(
      "gpu = 'A100-80GB'\nhosts = 4\ngpus_per_host = 8\n"
      "between = 'Ethernet-25'\n[gpu_rates]\ngemm_efficiency = 0.5\n"
      "[between_rates]\nlatency_s = 1e-4\n",
      "test");
  EXPECT_EQ(cluster.num_gpus(), 32);
  EXPECT_EQ(cluster.between.name, "Ethernet-25");
  EXPECT_DOUBLE_EQ(cluster.gpu.gemm_efficiency, 0.5);
  EXPECT_DOUBLE_EQ(cluster.between.latency_s, 1e-4);
}

constexpr const char* kCpuHost =
    "gpu = 'CPU'\ngpus_per_host = 2\ndisk_bytes_per_s = "
    "1.5e9\n[gpu_rates]\npeak_16bit_flops = 1e12\n"
    "peak_32bit_flops = 2e11\nmemory_bytes = 1e10\nmemory_bytes_per_s = 1e10\n"
    "[inside_rates]\nbytes_per_s = 4e9\nlatency_s = 1e-5\n"
    "reduce_bytes_per_s = 2e9\n"
    "[[measured]]\nkind = 'product'\ncompute = 'bf16'\n"
    "sizes = [256, 512, 512]\nper_s = 5e11\n";

TEST(Cluster, FileOfACalibratedHostIsReadBack) {
  const Cluster cluster = cluster_from_toml(kCpuHost, "test");
  EXPECT_EQ(cluster.num_gpus(), 2);
  ASSERT_EQ(cluster.gpu.measured.size(), 1U);
  EXPECT_EQ(cluster.gpu.measured[0].compute, ComputeType::Bf16);
  EXPECT_DOUBLE_EQ(cluster.gpu.measured[0].per_s, 5e11);
  EXPECT_DOUBLE_EQ(cluster.inside.reduce_bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(cluster.disk_bytes_per_s, 1.5e9);
  EXPECT_EQ(cluster_from_toml(to_toml(cluster), "again"), cluster);
}

TEST(Cluster, FileOfAHostSaysWhatIsMissing) {
  const std::string text = kCpuHost;
  const auto without = [&](const std::string& line) {
    std::string rest = text;
    rest.erase(rest.find(line),
               rest.find('\n', rest.find(line)) + 1 - rest.find(line));
    return [rest] { cluster_from_toml(rest, "here"); };
  };
  expect_message(without("peak_32bit_flops"),
                 {"'gpu_rates.peak_32bit_flops' is missing", "calibrate"});
  expect_message(without("bytes_per_s = 4e9"),
                 {"'inside_rates.bytes_per_s' is missing"});
  expect_message(without("per_s = 5e11"), {"kind, compute, sizes, per_s"});
  expect_message(
      [&] {
        cluster_from_toml(text +
                              "[[measured]]\nkind = 'prodct'\ncompute = "
                              "'fp32'\nsizes = [1]\nper_s = 1\n",
                          "here");
      },
      {"'prodct'", "nearest is 'product'"});
}

TEST(Cluster, FileErrorsNameTheKey) {
  const auto read = [](const char* text) {
    return [text] { cluster_from_toml(text, "here"); };
  };
  expect_message(read("hosts = 2"), {"here", "'gpu' is missing"});
  expect_message(read("gpu = 'H100'\nhots = 2"), {"'hots'", "'hosts'"});
  expect_message(read("gpu = 'H100'\nhosts = 0"), {"'hosts'", "from 1"});
  expect_message(read("gpu = 'H100'\n[gpu_rates]\ngemm_eficiency = 1"),
                 {"'gpu_rates.gemm_eficiency'", "'gemm_efficiency'"});
  expect_message(read("gpu = 'H100'\n[gpu_rates]\npower_w = -1"),
                 {"'gpu_rates.power_w'", "above 0"});
  expect_message(read("gpu = "), {"here"});
}

}  // namespace
}  // namespace accordion::plan
