// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion::plan {

struct PlanRequest;

/// Bytes that one layer's forward saves for its backward, of one microbatch on
/// one rank, with the checkpointing asked for.
///
/// // [Note: what is saved]
/// Counted from the formulas, tensor by tensor: inputs of products, of norms
/// and of the activation, what attention reads, its output and its sums.
/// Written as PyTorch expressions a norm saves its input in fp32 and its
/// output before the weight besides, and SiLU its output. Selective
/// checkpointing keeps the layer's input, attention's output, and the outputs
/// of every second product (none, where products are 8-bit: the policy names
/// the 16-bit operator).
///
/// Source  Korthikanti et al. 2022, arXiv:2205.05198, for the method
double saved_by_layer(const PlanRequest& request);

/// The same without checkpointing: what the backward of a checkpointed layer
/// holds when it has been computed again.
double saved_by_whole_layer(const PlanRequest& request);

/// What the backward of one layer holds at most besides: gradients of its
/// widest tensors.
double working_of_layer(const PlanRequest& request);

/// Logits and what the loss makes of them at its peak, in backward.
double logits_memory(const PlanRequest& request);

/// Microbatches whose activations the first stage holds at a time: 1 without a
/// pipeline.
double microbatches_in_flight(const PlanRequest& request);

}  // namespace accordion::plan
