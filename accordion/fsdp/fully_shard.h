// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/options.h"
#include "accordion/module/unit.h"

namespace accordion {

/// Shards the parameters of `root` over the mesh.
///
/// Every accordion::Unit below `root`, and `root` itself, becomes an FSDP unit:
/// its parameters, less those of units inside it, are gathered before its
/// forward and backward and reduced together. Afterwards each parameter of the
/// module is this rank's piece (possibly empty) and `.grad()` its gradient, so
/// that an optimizer made before or after works on pieces.
///
/// Requires  the same module with the same values on every rank (checked by a
///           checksum); called once, outside of forward and backward
/// Comm      one all-reduce of the checksums; allocates communication buffers
/// Memory    parameters shrink to their pieces; buffers of
///           FsdpOptions::prefetch + 2 of the largest unit come on top, but for
///           units that are gathered in place (FsdpOptions::gather_in_place)
/// Throws    c10::ValueError: parameters in no unit, parameters on another
///           device or dtype than the mesh handles, ranks that disagree,
///           a module that is sharded already
/// Source    Zhao et al. 2023, arXiv:2304.11277; upstream fully_shard
void fully_shard(torch::nn::Module& root, const DeviceMesh& mesh,
                 const FsdpOptions& options = {});

template <class Contained>
void fully_shard(torch::nn::ModuleHolder<Contained>& root,
                 const DeviceMesh& mesh, const FsdpOptions& options = {}) {
  fully_shard(static_cast<torch::nn::Module&>(*root), mesh, options);
}

}  // namespace accordion
