// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/hierarchical_communicator.h"

#include <gtest/gtest.h>

#include <thread>

#include "accordion/comm/shm/shm_communicator.h"
#include "tests/comm/collective_checks.h"

// Hosts are played by groups of threads; what crosses them is shared memory
// too, so these run under the thread sanitizer.
namespace accordion::testing {
namespace {

using std::chrono::milliseconds;

struct Hosts {
  std::vector<std::unique_ptr<Communicator>> ranks;
  // What carries the ranks' all-gathers and reductions between hosts.
  std::vector<const Communicator*> gathers_between;
  std::vector<const Communicator*> others_between;
};

std::vector<HostLink> make_links(int num_hosts, int per_host,
                                 milliseconds timeout) {
  std::vector<HostLink> links(static_cast<std::size_t>(num_hosts * per_host));
  const auto at = [&](int host, int place) -> HostLink& {
    return links[static_cast<std::size_t>(host * per_host + place)];
  };
  for (int host = 0; host < num_hosts; ++host) {
    std::vector<int> members;
    for (int place = 0; place < per_host; ++place) {
      members.push_back(host * per_host + place);
    }
    auto local = make_local_shm_group(per_host, timeout, members);
    for (int place = 0; place < per_host; ++place) {
      at(host, place).local = std::move(local[static_cast<std::size_t>(place)]);
    }
  }
  for (int place = 0; place < per_host; ++place) {
    std::vector<int> members;
    for (int host = 0; host < num_hosts; ++host) {
      members.push_back(host * per_host + place);
    }
    auto between = make_local_shm_group(num_hosts, timeout, members);
    for (int host = 0; host < num_hosts; ++host) {
      at(host, place).between =
          std::move(between[static_cast<std::size_t>(host)]);
    }
  }
  return links;
}

Hosts make_hosts(int num_hosts, int per_host,
                 milliseconds timeout = milliseconds(30'000)) {
  auto gathers = make_links(num_hosts, per_host, timeout);
  auto others = make_links(num_hosts, per_host, timeout);
  Hosts hosts;
  for (std::size_t rank = 0; rank < gathers.size(); ++rank) {
    hosts.gathers_between.push_back(gathers[rank].between.get());
    hosts.others_between.push_back(others[rank].between.get());
    hosts.ranks.push_back(make_hierarchical_communicator(
        std::move(gathers[rank]), std::move(others[rank])));
  }
  return hosts;
}

// Hosts and ranks on each.
class HierarchicalCollectives
    : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  Hosts hosts_ = make_hosts(GetParam().first, GetParam().second);
};

TEST_P(HierarchicalCollectives, AreRight) {
  run_threads(hosts_.ranks, [](Communicator& rank) {
    check_collectives(rank, Memory::CommBuffers);
    check_collectives(rank, Memory::Ordinary);
    check_counters(rank);
  });
}

TEST_P(HierarchicalCollectives, ReuseSlotsSafely) {
  run_threads(hosts_.ranks,
              [](Communicator& rank) { check_slot_reuse(rank, 60); });
}

TEST_P(HierarchicalCollectives, RepeatTheSumsOfHostSums) {
  run_threads(hosts_.ranks, [](Communicator& rank) {
    check_sums_repeat(rank, Memory::CommBuffers, GetParam().second);
    check_sums_repeat(rank, Memory::Ordinary, GetParam().second);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, HierarchicalCollectives,
                         ::testing::Values(std::pair(2, 2), std::pair(3, 2),
                                           std::pair(1, 3), std::pair(3, 1)));

TEST(HierarchicalCommunicator, RanksCountHostByHost) {
  const Hosts hosts = make_hosts(2, 3);
  for (int rank = 0; rank < 6; ++rank) {
    const Communicator& own = *hosts.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(own.rank(), rank);
    EXPECT_EQ(own.world_size(), 6);
    EXPECT_EQ(own.backend(), "hierarchical");
    EXPECT_EQ(own.timeout(), milliseconds(30'000));
  }
}

// A flat all-gather over 4 ranks brings each of them the pieces of both ranks
// of the other host: here each gets one, and the host shares them.
TEST(HierarchicalCommunicator, EachPieceEntersAHostOnce) {
  Hosts hosts = make_hosts(2, 2);
  constexpr std::int64_t kNumel = 1000;
  run_threads(hosts.ranks, [](Communicator& rank) {
    std::vector<float> full(4 * kNumel);
    std::vector<float> local(kNumel);
    const GatherPart gather = {local.data(), DType::Float32, full.data(),
                               DType::Bfloat16, kNumel};
    const ReducePart scatter = {full.data(),    DType::Bfloat16, local.data(),
                                DType::Float32, DType::Float32,  kNumel};
    rank.all_gather_into({&gather, 1}, nullptr, "unit").wait();
    rank.reduce_scatter_into({&scatter, 1}, nullptr, "unit").wait();
    rank.all_reduce({&scatter, 1}, nullptr, "unit").wait();
  });
  // Of two hosts: half of it travels.
  for (const Communicator* between : hosts.gathers_between) {
    EXPECT_EQ(between->counters().bytes_of(CommOp::AllGather), 2 * 2 * kNumel);
  }
  for (const Communicator* between : hosts.others_between) {
    const CommCounters& counters = between->counters();
    EXPECT_EQ(counters.bytes_of(CommOp::ReduceScatter), 2 * 4 * kNumel);
    EXPECT_EQ(counters.bytes_of(CommOp::AllReduce), 4 * kNumel / 2);
  }
}

// fp32 holds 1 + 2^-10 + 2^-10, whose parts vanish in bf16.
TEST(HierarchicalCommunicator, SumsTravelBetweenHostsUnrounded) {
  Hosts hosts = make_hosts(2, 2);
  run_threads(hosts.ranks, [](Communicator& rank) {
    const bool first = rank.rank() == 0;
    std::uint16_t operand = first ? 0x3f80 : 0x3a80;  // 1, 2^-10
    float sum = 0;
    const ReducePart part = {&operand,       DType::Bfloat16, &sum,
                             DType::Float32, DType::Float32,  1};
    rank.all_reduce({&part, 1}, nullptr, "unit").wait();
    EXPECT_EQ(sum, 1.0f + 3.0f / 1024.0f);
  });
}

TEST(HierarchicalCommunicator, AGatherMayOvertakeAReduction) {
  Hosts hosts = make_hosts(2, 2);
  run_threads(hosts.ranks, [](Communicator& rank) {
    float value = 1;
    float sum = 0;
    std::vector<float> all(4);
    const GatherPart gather = {&value, DType::Float32, all.data(),
                               DType::Float32, 1};
    const ReducePart reduce = {&value,         DType::Float32, &sum,
                               DType::Float32, DType::Float32, 1};
    // Issued and waited for in another order on every second rank.
    if (rank.rank() % 2 == 0) {
      Work gathering = rank.all_gather_into({&gather, 1}, nullptr, "gather");
      rank.all_reduce({&reduce, 1}, nullptr, "reduce").wait();
      gathering.wait();
    } else {
      Work reducing = rank.all_reduce({&reduce, 1}, nullptr, "reduce");
      rank.all_gather_into({&gather, 1}, nullptr, "gather").wait();
      reducing.wait();
    }
    EXPECT_EQ(sum, 4);
    EXPECT_EQ(all[3], 1);
  });
}

std::string gather_message(Communicator& rank) {
  float value = 0;
  std::vector<float> all(4);
  const GatherPart part = {&value, DType::Float32, all.data(), DType::Float32,
                           1};
  return message_of([&] {
    rank.all_gather_into({&part, 1}, nullptr, "layers.3").wait();
  });
}

void expect_text(const std::string& message, const std::string& phrase) {
  EXPECT_NE(message.find(phrase), std::string::npos)
      << message << "\ndoes not say: " << phrase;
}

// Rank 2, the first on the second host, never comes. Rank 0 waits for it
// between hosts; ranks 1 and 3 for ranks 0 and 2 on their hosts.
TEST(HierarchicalCommunicator, LateRankIsNamed) {
  Hosts hosts = make_hosts(2, 2, milliseconds(400));
  run_threads(hosts.ranks, [](Communicator& rank) {
    if (rank.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(1500));
      return;
    }
    const std::string message = gather_message(rank);
    const std::string own = std::to_string(rank.rank());
    expect_text(message,
                "[hierarchical] all_gather 'layers.3' (call 1 of its "
                "kind) on rank " +
                    own + " of 4 failed: [shm]");
    expect_text(message, rank.rank() == 1 ? "rank 0" : "rank 2 (pid");
    // The communicator is of no more use, and says why.
    EXPECT_EQ(gather_message(rank), message);
  });
}

// Rank 1 learns from rank 0 what rank 0 met between hosts, long before its own
// timeout.
TEST(HierarchicalCommunicator, AFailureIsPassedOnInTheHost) {
  Hosts hosts = make_hosts(2, 2, milliseconds(60'000));
  hosts.ranks[2].reset();
  hosts.ranks.erase(hosts.ranks.begin() + 2);
  const auto start = std::chrono::steady_clock::now();
  run_threads(hosts.ranks, [](Communicator& rank) {
    const std::string message = gather_message(rank);
    expect_text(message, "closed its communicator");
    if (rank.rank() == 1) {
      expect_text(message, "rank 0 (pid");
      expect_text(message,
                  "all_gather 'layers.3' (call 1 of its kind) on rank "
                  "0 of 4 failed");
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(HierarchicalCommunicator, AbandonTellsThePeers) {
  Hosts hosts = make_hosts(1, 2, milliseconds(60'000));
  run_threads(hosts.ranks, [](Communicator& rank) {
    if (rank.rank() == 1) {
      rank.abandon("the loss is not a number");
    }
    expect_text(gather_message(rank), "the loss is not a number");
  });
}

TEST(HierarchicalCommunicator, MisusedBuffersAreErrors) {
  Hosts hosts = make_hosts(2, 1);
  run_threads(hosts.ranks, [](Communicator& rank) {
    const auto common = rank.allocate_common(64, "slot");
    float value = 0;
    const ReducePart part = {common->data(), DType::Float32, &value,
                             DType::Float32, DType::Float32, 1};
    expect_text(message_of([&] {
                  (void)rank.reduce_scatter_into({&part, 1}, common.get(), "x");
                }),
                "the buffer is of the wrong kind");
    auto other = make_local_shm_group(1, milliseconds(1000));
    const auto foreign = other[0]->allocate_common(64, "slot");
    expect_text(message_of([&] { rank.release(*foreign); }),
                "belongs to another communicator");
    expect_text(message_of([&] { rank.broadcast(&value, 4, 2, "x"); }),
                "4 bytes from rank 2 of 2");
  });
}

}  // namespace
}  // namespace accordion::testing
