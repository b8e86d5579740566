// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <vector>

#include "accordion/comm/device_mesh.h"

namespace accordion {

/// Meshes for ranks that are threads of this process: element r belongs to the
/// thread of rank r. Each group of ranks has shared memory of its own, as with
/// DeviceMesh::connect.
///
/// Throws std::invalid_argument for axes without names of their own or with
///        sizes below 1
std::vector<DeviceMesh> make_local_meshes(
    std::vector<MeshAxis> axes,
    std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace accordion
