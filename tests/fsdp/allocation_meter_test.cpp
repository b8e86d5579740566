// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/allocation_meter.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accordion {
namespace {

using ::testing::HasSubstr;

at::Tensor bytes(std::int64_t count) {
  return at::empty({count}, at::kByte);
}

std::int64_t of(const AllocatedBytes& allocated, MemoryPhase phase) {
  return allocated.by_phase[static_cast<std::size_t>(phase)];
}

TEST(AllocationMeter, CountsTensorsToTheByteUntilTheirMemoryEnds) {
  const AllocationMeter meter;
  at::Tensor tensor = bytes(1001);
  const at::Tensor view = tensor.narrow(0, 3, 5);
  EXPECT_EQ(meter.live().total(), 1001);
  tensor.reset();
  EXPECT_EQ(meter.live().total(), 1001) << "the view holds it";
  const_cast<at::Tensor&>(view).reset();
  EXPECT_EQ(meter.live().total(), 0);
}

TEST(AllocationMeter, CountsByThePhaseOfTheAllocation) {
  AllocationMeter meter;
  at::Tensor before = bytes(100);
  EXPECT_EQ(meter.enter(MemoryPhase::Forward), MemoryPhase::Rest);
  at::Tensor in_forward = bytes(20);
  EXPECT_EQ(meter.enter(MemoryPhase::Backward), MemoryPhase::Forward);
  const at::Tensor in_backward = bytes(3);
  EXPECT_EQ(meter.live().in_passes(), 23);
  EXPECT_EQ(meter.live().outside(), 100);
  EXPECT_EQ(meter.phase_of(in_forward.const_data_ptr()), MemoryPhase::Forward);
  in_forward.reset();
  before.reset();
  EXPECT_EQ(of(meter.live(), MemoryPhase::Forward), 0);
  EXPECT_EQ(of(meter.live(), MemoryPhase::Backward), 3);
  EXPECT_EQ(meter.live().outside(), 0);
}

TEST(AllocationMeter, SeesTheEndOnAnotherThread) {
  const AllocationMeter meter;
  at::Tensor tensor = bytes(4096);
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(meter.live().total(), 0);
}

TEST(AllocationMeter, DoesNotCountTheEndOfWhatWasThereBefore) {
  at::Tensor early = bytes(512);
  const AllocationMeter meter;
  const at::Tensor late = bytes(64);
  EXPECT_EQ(meter.phase_of(early.const_data_ptr()), std::nullopt);
  early.reset();
  EXPECT_EQ(meter.live().total(), 64);
}

TEST(AllocationMeter, TensorsOutliveIt) {
  at::Tensor tensor;
  {
    const AllocationMeter meter;
    tensor = bytes(128);
  }
  const AllocationMeter next;
  EXPECT_EQ(next.phase_of(tensor.const_data_ptr()), std::nullopt);
  tensor.reset();
  EXPECT_EQ(next.live().total(), 0);
}

TEST(AllocationMeter, PeakIsTheMomentOfTheHighestTotal) {
  AllocationMeter meter;
  const at::Tensor kept = bytes(10);
  meter.enter(MemoryPhase::Forward);
  bytes(300);
  bytes(200);
  EXPECT_EQ(of(meter.take_peak(), MemoryPhase::Forward), 300);
  bytes(40);
  const AllocatedBytes second = meter.take_peak();
  EXPECT_EQ(of(second, MemoryPhase::Forward), 40);
  EXPECT_EQ(of(second, MemoryPhase::Rest), 10);
}

TEST(AllocationMeter, EachThreadCountsItsOwn) {
  const AllocationMeter meter;
  const at::Tensor mine = bytes(100);
  std::int64_t theirs = 0;
  std::int64_t unmetered = 0;
  std::thread([&] {
    const AllocationMeter other;
    const at::Tensor tensor = bytes(7);
    theirs = other.live().total();
  }).join();
  std::thread([&] {
    const at::Tensor tensor = bytes(7);
    unmetered = meter.live().total();
  }).join();
  EXPECT_EQ(theirs, 7);
  EXPECT_EQ(unmetered, 100);
}

TEST(AllocationMeter, InnermostOfAThreadCounts) {
  const AllocationMeter outer;
  {
    const AllocationMeter inner;
    const at::Tensor tensor = bytes(5);
    EXPECT_EQ(inner.live().total(), 5);
    EXPECT_EQ(outer.live().total(), 0);
  }
  const at::Tensor tensor = bytes(6);
  EXPECT_EQ(outer.live().total(), 6);
}

TEST(AllocationMeter, RefusesWhatWouldExceedTheLimitOnce) {
  AllocationMeter meter;
  const at::Tensor held = bytes(900);
  std::vector<std::int64_t> refused;
  meter.set_limit(1000, [&](const AllocationMeter::Refused& what) {
    EXPECT_EQ(what.error, "");
    refused.push_back(what.bytes);
    throw std::runtime_error("too much");
  });
  EXPECT_NO_THROW(bytes(100));
  EXPECT_THROW(bytes(101), std::runtime_error);
  EXPECT_EQ(meter.live().total(), 900);
  EXPECT_NO_THROW(bytes(101)) << "what cleans up may allocate";
  EXPECT_EQ(refused, std::vector<std::int64_t>{101});
}

TEST(AllocationMeter, TellsWhatTheAllocatorSaidWhenItFails) {
  AllocationMeter meter;
  std::string said;
  meter.set_limit(std::nullopt, [&](const AllocationMeter::Refused& what) {
    EXPECT_EQ(what.bytes, std::int64_t{1} << 60);
    said = what.error;
  });
  EXPECT_ANY_THROW(bytes(std::int64_t{1} << 60));
  EXPECT_THAT(said, HasSubstr("can't allocate memory"));
  EXPECT_EQ(meter.live().total(), 0);
}

TEST(AllocationMeter, SamplesFollowEachChangeWhileItRecords) {
  AllocationMeter meter;
  meter.enter(MemoryPhase::Backward);
  bytes(1);
  meter.record(true);
  bytes(50);
  std::vector<std::int64_t> seen;
  std::int64_t last_ns = 0;
  for (const AllocationMeter::Sample& sample : meter.samples()) {
    seen.push_back(sample.in_passes);
    EXPECT_GE(sample.ns, last_ns);
    last_ns = sample.ns;
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{50, 0}));
  meter.record(false);
  bytes(50);
  EXPECT_TRUE(meter.samples().empty());
}

TEST(AllocationMeter, MemoryMayBeTakenAndReturnedWithoutATensor) {
  AllocationMeter meter;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const data = allocator->raw_allocate(32);
  EXPECT_EQ(meter.live().total(), 32);
  allocator->raw_deallocate(data);
  EXPECT_EQ(meter.live().total(), 0);
}

}  // namespace
}  // namespace accordion
