// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/streams/streamed_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/shm/shm_communicator.h"
#include "accordion/comm/streams/call_watch.h"
#include "tests/support/played_device.h"

namespace accordion::testing {
namespace {

using detail::StreamId;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kRank = 1;
constexpr int kRanks = 3;
constexpr std::int64_t kNumel = 4;

/// One of kRanks ranks on a played device.
struct Played {
  Played()
      : communicator(detail::make_streamed_communicator(
            device, std::make_unique<PlayedTransport>(*device, kRank, kRanks),
            make_fake_communicator(kRank, kRanks),
            {.watch_interval = std::chrono::milliseconds(0)})) {}

  GatherPart part_into(CommBuffer& slot) const {
    return {shard.data(), DType::Float32, slot.data(), DType::Float32, kNumel};
  }
  Work gather(CommBuffer& slot) const {
    const GatherPart part = part_into(slot);
    return communicator->all_gather_into({&part, 1}, &slot, "unit");
  }
  Work reduce(CommBuffer& slot) {
    const ReducePart part = {.full = slot.data(),
                             .full_dtype = DType::Float32,
                             .local = shard_gradient.data(),
                             .local_dtype = DType::Float32,
                             .reduce_dtype = DType::Float32,
                             .numel = kNumel,
                             .scale = 0.5,
                             .sum_of_squares = &squares};
    return communicator->reduce_scatter_into({&part, 1}, &slot, "unit");
  }
  std::unique_ptr<CommBuffer> slot() const {
    return communicator->allocate_common(kRanks * kNumel * 4, "slot");
  }
  /// The caller's queue computes from a slot.
  void compute_from(const CommBuffer& slot) const {
    device->task(StreamId::Caller, "a forward", {{slot.data(), slot.bytes()}},
                 {});
  }
  void compute_to(const CommBuffer& slot) const {
    device->task(StreamId::Caller, "a backward", {},
                 {{slot.data(), slot.bytes()}});
  }
  void update_shard() {
    device->task(StreamId::Caller, "an optimizer", {},
                 {{shard.data(), kNumel * 4}});
  }

  std::shared_ptr<PlayedDevice> device = std::make_shared<PlayedDevice>();
  std::vector<float> shard = {1, 2, 3, 4};
  std::vector<float> shard_gradient = std::vector<float>(kNumel, 0.0f);
  double squares = 0;
  std::unique_ptr<Communicator> communicator;
};

/// Gathers into a slot twice, computing from it in between.
std::vector<std::string> races_of_reuse(
    std::optional<StreamId> forgets_waits_of) {
  Played rank;
  const auto slot = rank.slot();
  rank.device->forgets_waits_of = forgets_waits_of;
  for (int use = 0; use < 2; ++use) {
    rank.gather(*slot).wait();
    rank.compute_from(*slot);
    rank.communicator->release(*slot);
  }
  return rank.device->races;
}

TEST(StreamedCommunicator, GatherWaitsForTheLastUseOfItsSlot) {
  EXPECT_THAT(races_of_reuse(std::nullopt), IsEmpty());
  // Without the wait the second gather may overwrite what a forward reads.
  EXPECT_THAT(races_of_reuse(StreamId::Gather),
              ::testing::Contains("a gather and a forward"));
}

TEST(StreamedCommunicator, ForwardWaitsForTheGather) {
  EXPECT_THAT(races_of_reuse(StreamId::Caller),
              ::testing::Contains("a forward and a gather"));
}

TEST(StreamedCommunicator, PrefetchedGatherDoesNotWaitForWhatIsComputed) {
  Played rank;
  const auto first = rank.slot();
  const auto second = rank.slot();
  rank.gather(*first).wait();
  rank.compute_from(*first);
  const auto computed = rank.device->record(StreamId::Caller);
  Work work = rank.gather(*second);
  EXPECT_FALSE(rank.device->is_before(*computed, StreamId::Gather));
  work.wait();
  EXPECT_THAT(rank.device->races, IsEmpty());
}

TEST(StreamedCommunicator, GatherSeesAShardThatWasWrittenBeforeFollowCaller) {
  for (const bool follows : {true, false}) {
    Played rank;
    const auto slot = rank.slot();
    rank.update_shard();
    if (follows) {
      rank.communicator->follow_caller();
    }
    rank.gather(*slot).wait();
    EXPECT_EQ(rank.device->races.empty(), follows);
  }
}

/// Writes gradients to a slot and reduces it, twice.
std::vector<std::string> races_of_reductions(
    std::optional<StreamId> forgets_waits_of) {
  Played rank;
  const auto slot = rank.slot();
  rank.device->forgets_waits_of = forgets_waits_of;
  for (int use = 0; use < 2; ++use) {
    rank.communicator->acquire(*slot);
    rank.compute_to(*slot);
    rank.reduce(*slot).wait();
  }
  return rank.device->races;
}

TEST(StreamedCommunicator, ReductionWaitsForTheBackwardThatWritesItsSlot) {
  EXPECT_THAT(races_of_reductions(std::nullopt), IsEmpty());
  EXPECT_THAT(races_of_reductions(StreamId::Reduce),
              ::testing::Contains("a reduction and a backward"));
}

TEST(StreamedCommunicator, BackwardWaitsForTheLastReductionOfItsSlot) {
  EXPECT_THAT(races_of_reductions(StreamId::Caller),
              ::testing::Contains("a backward and a reduction"));
}

TEST(StreamedCommunicator, GathersAndReductionsDoNotWaitForEachOther) {
  Played rank;
  const auto parameters = rank.slot();
  const auto gradients = rank.slot();
  rank.compute_to(*gradients);
  Work reduction = rank.reduce(*gradients);
  const auto reduced = rank.device->record(StreamId::Reduce);
  Work gather = rank.gather(*parameters);
  EXPECT_FALSE(rank.device->is_before(*reduced, StreamId::Gather));
  gather.wait();
  reduction.wait();
}

TEST(StreamedCommunicator, ABufferIsFreedWhenNoQueueUsesIt) {
  Played rank;
  auto slot = rank.slot();
  rank.gather(*slot).wait();
  rank.compute_from(*slot);
  rank.communicator->release(*slot);
  slot.reset();
  EXPECT_THAT(rank.device->races, IsEmpty());
}

TEST(StreamedCommunicator, GathersInPlaceAndReducesWithScale) {
  Played rank;
  const auto slot = rank.slot();
  rank.gather(*slot).wait();
  const auto* const full = reinterpret_cast<const float*>(slot->data());
  EXPECT_EQ(std::vector<float>(full, full + 3 * kNumel),
            (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  rank.communicator->release(*slot);
  // Three ranks, each 1 … 4, times one half.
  rank.reduce(*slot).wait();
  EXPECT_EQ(rank.shard_gradient, (std::vector<float>{1.5f, 3, 4.5f, 6}));
  EXPECT_DOUBLE_EQ(rank.squares, 1.5 * 1.5 + 9 + 4.5 * 4.5 + 36);
}

TEST(StreamedCommunicator, NumbersOfTheHostGoOverTheHost) {
  Played rank;
  const float mine = 7;
  std::vector<float> all(kRanks);
  const GatherPart part = {&mine, DType::Float32, all.data(), DType::Float32,
                           1};
  rank.device->hangs = true;
  rank.communicator->all_gather_into({&part, 1}, nullptr, "numbers").wait();
  EXPECT_EQ(all, std::vector<float>(kRanks, 7));
  EXPECT_EQ(rank.communicator->counters().calls_of(CommOp::AllGather), 1);
}

TEST(StreamedCommunicator, UsingABufferTwiceIsAnError) {
  Played rank;
  const auto slot = rank.slot();
  rank.gather(*slot).wait();
  EXPECT_THROW((void)rank.gather(*slot), std::logic_error);
  EXPECT_THROW(rank.communicator->acquire(*slot), std::logic_error);
  rank.communicator->release(*slot);
  rank.gather(*slot).wait();
}

TEST(StreamedCommunicator, ALoneOneHasTheSameMemory) {
  const Played rank;
  const auto lone = rank.communicator->make_lone();
  EXPECT_EQ(lone->world_size(), 1);
  EXPECT_TRUE(rank.device->holds(lone->allocate_common(64, "slot")->data()));
}

TEST(StreamedCommunicator, DebugCallsNameBothSides) {
  std::vector<std::unique_ptr<Communicator>> hosts =
      make_local_shm_group(2, std::chrono::seconds(20));
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    threads.emplace_back([&, rank, i] {
      const auto device = std::make_shared<PlayedDevice>();
      const auto communicator = detail::make_streamed_communicator(
          device, std::make_unique<PlayedTransport>(*device, rank, 2),
          std::move(hosts[i]), {.debug_calls = true, .members = {4, 6}});
      const auto slot = communicator->allocate_common(64, "slot");
      const float shard = 1;
      const GatherPart part = {&shard, DType::Float32, slot->data(),
                               DType::Float32, 1};
      try {
        communicator
            ->all_gather_into({&part, 1}, slot.get(),
                              rank == 0 ? "blocks.1" : "blocks.2")
            .wait();
      } catch (const CommError& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 4"), HasSubstr("all_gather of 'blocks.1'"),
                    HasSubstr("rank 6 calls all_gather of 'blocks.2'")));
  EXPECT_THAT(errors[1], HasSubstr("rank 4 calls all_gather of 'blocks.1'"));
}

// ---- CallWatch -------------------------------------------------------------

struct Watched {
  PlayedDevice device;
  PlayedTransport transport{device, 0, 2};
  detail::CallWatch watch{device, transport, "rank 0 of 2",
                          std::chrono::minutes(5)};
  detail::CallWatch::Clock::time_point begun = {};

  void add(const std::string& text) {
    watch.add(
        device.record(StreamId::Gather), [text] { return text; }, begun);
  }
  std::string error() const {
    try {
      watch.check();
    } catch (const CommError& error) {
      return error.what();
    }
    return "";
  }
};

TEST(CallWatch, ACallThatEndsIsForgotten) {
  Watched watched;
  watched.add("all_gather of 'blocks.0'");
  watched.watch.look(watched.begun + std::chrono::hours(1));
  EXPECT_EQ(watched.watch.in_flight(), 0u);
  EXPECT_THAT(watched.error(), IsEmpty());
  EXPECT_FALSE(watched.transport.aborted);
}

TEST(CallWatch, ALateCallAbortsTheTransportAndIsNamed) {
  Watched watched;
  watched.device.hangs = true;
  watched.add("all_gather of 'blocks.0'");
  watched.watch.look(watched.begun + std::chrono::minutes(4));
  EXPECT_THAT(watched.error(), IsEmpty());
  watched.watch.look(watched.begun + std::chrono::minutes(6));
  EXPECT_THAT(watched.error(), AllOf(HasSubstr("rank 0 of 2"),
                                     HasSubstr("all_gather of 'blocks.0'"),
                                     HasSubstr("300000 ms")));
  EXPECT_TRUE(watched.transport.aborted);
}

TEST(CallWatch, AFaultOfTheTransportIsThrownByTheNextCall) {
  Watched watched;
  watched.transport.reported = "remote process exited";
  watched.watch.look();
  EXPECT_THAT(watched.error(), HasSubstr("remote process exited"));
  EXPECT_TRUE(watched.transport.aborted);
}

TEST(CallWatch, LooksByItself) {
  Watched watched;
  watched.transport.reported = "remote process exited";
  watched.watch.start(std::chrono::milliseconds(1));
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (watched.error().empty() &&
         std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_THAT(watched.error(), Not(IsEmpty()));
}

}  // namespace
}  // namespace accordion::testing
