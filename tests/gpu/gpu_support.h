// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "accordion/comm/device_mesh.h"

namespace accordion::testing {

/// Tests that need a CUDA device say so where there is none. gpu_check.sh fails
/// where one was skipped.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    at::globalContext().setAllowTF32CuBLAS(false);
    torch::manual_seed(3);
  }
};

/// This process alone, on its device.
inline DeviceMesh gpu_mesh() {
  return DeviceMesh::connect(Rendezvous{}, {.backend = "nccl"});
}
inline DeviceMesh cpu_mesh() {
  return DeviceMesh::connect(Rendezvous{}, {.backend = "shm"});
}

}  // namespace accordion::testing
