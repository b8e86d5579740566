// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "accordion/plan/operator_time.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/unit_times.h"
#include "tests/plan/small_request.h"

namespace accordion::plan {
namespace {

/// Two ranks on a host whose disk takes a second for all moments of a rank,
/// read and written at a time: 8 bytes a parameter each way.
class OffloadTime : public ::testing::Test {
 protected:
  OffloadTime() {
    request_.cluster.gpu.collective_share = 0.0;
    request_.training.micro_batch = 1;
    request_.training.seq_len = 64;  // that the disk is waited for
    params_ = params_of_rank(request_) / 2.0;
    request_.cluster.disk_bytes_per_s = params_ * 16.0;
    request_.strategy.offload.step_on_device = true;
  }

  double step_s() const { return make_plan(request_).time.step_s; }
  /// The same on a disk that costs nothing.
  TimePlan fast() const {
    PlanRequest request = request_;
    request.cluster.disk_bytes_per_s = 1e15;
    return make_plan(request).time;
  }

  PlanRequest request_ = testing::small_request("2xA100");
  double params_ = 0.0;
};

TEST_F(OffloadTime, MomentsComeAndGoBesideTheOptimizer) {
  request_.strategy.offload.optimizer = OffloadTo::Disk;
  EXPECT_NEAR(step_s(), fast().step_s + 1.0 - fast().optimizer_s, 1e-9);
}

TEST_F(OffloadTime, OfStepsInBackwardTheyDoSoBesideBackward) {
  request_.strategy.offload.optimizer = OffloadTo::Disk;
  request_.training.step_in_backward = true;
  EXPECT_NEAR(step_s(), fast().step_s + 1.0 - fast().backward_s, 1e-9);
}

TEST_F(OffloadTime, GradientsGoBesideBackwardAndComeForTheStep) {
  request_.strategy.offload.optimizer = OffloadTo::Disk;
  request_.strategy.offload.gradients = OffloadTo::Disk;
  const double gradients = 0.5;  // 4 bytes of 8, one way
  EXPECT_NEAR(step_s(),
              fast().step_s + gradients - fast().backward_s + 1.0 + gradients -
                  fast().optimizer_s,
              1e-9);
}

TEST_F(OffloadTime, ParametersComeForEachPass) {
  request_.strategy.offload.parameters = OffloadTo::Disk;
  const double read = 0.5;
  EXPECT_NEAR(step_s(),
              fast().step_s + read - fast().forward_s + read -
                  fast().backward_s + read - fast().optimizer_s,
              1e-9);
}

TEST_F(OffloadTime, OnAFastDiskOnlyBuffersCost) {
  const TimePlan in_memory = fast();
  request_.strategy.offload.optimizer = OffloadTo::Disk;
  EXPECT_DOUBLE_EQ(fast().step_s, in_memory.step_s);
  request_.strategy.offload.gradients = OffloadTo::Disk;
  EXPECT_NEAR(fast().backward_s - in_memory.backward_s,
              memory_time(params_ * (4.0 + 4.0), request_.cluster.gpu), 1e-9);
}

}  // namespace
}  // namespace accordion::plan
