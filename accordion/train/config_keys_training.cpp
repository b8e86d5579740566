// SPDX-License-Identifier: BSD-3-Clause
//
// Keys of how a model is trained: steps, optimizer, learning rate, sharding.
#include "accordion/train/config_key_table.h"

namespace accordion::detail {

std::vector<ConfigKey> training_keys() {
  return {
      {.name = "train.steps",
       .field = ACCORDION_FIELD(train.steps),
       .doc = "Optimizer steps; 0: as many as train.epochs or train.seconds "
              "say.",
       .range = at_least(0)},
      {.name = "train.epochs",
       .field = ACCORDION_FIELD(train.epochs),
       .doc = "Times that all training samples are seen, instead of "
              "train.steps; a last step that they do not fill takes the rest "
              "from the next epoch. 0: train.steps says.",
       .range = {.low = 0, .high = 1e6}},
      {.name = "train.seconds",
       .field = ACCORDION_FIELD(train.seconds),
       .doc = "Time budget of the training loop: it ends after the step in "
              "which it is spent, and the schedule then follows time. "
              "0: no limit. Such a run depends on the machine's speed.",
       .range = at_least(0)},
      {.name = "train.batch_size",
       .field = ACCORDION_FIELD(train.batch_size),
       .doc = "Sequences per rank and microbatch.",
       .range = at_least(1)},
      {.name = "train.grad_accumulation",
       .field = ACCORDION_FIELD(train.grad_accumulation),
       .doc = "Microbatches per step; their gradients add up.",
       .range = at_least(1)},
      {.name = "train.threads",
       .field = ACCORDION_FIELD(train.threads),
       .doc = "Compute threads per rank; 0: one for each core that it may "
              "use, shared with the ranks that may use the same.",
       .range = at_least(0)},
      {.name = "train.device",
       .field = ACCORDION_FIELD(train.device),
       .doc = "Where to train. cpu. cuda: each rank on the CUDA device of its "
              "local rank, joined by NCCL, in a build with ACCORDION_CUDA "
              "(docs/gpu.md).",
       .choices = {"cpu", "cuda"}},
      {.name = "train.nonfinite",
       .field = ACCORDION_FIELD(train.nonfinite),
       .doc = "A step whose gradient is infinite or no number. error: ends "
              "the run. skip: is not taken, see train.max_skips. rollback: "
              "the run goes back to its newest checkpoint and on with the "
              "samples after those of that step, see train.max_rollbacks. "
              "allow: is taken like any other. In fp16 only where the loss is "
              "not finite either, see optimizer.loss_scale.",
       .choices = {"error", "skip", "rollback", "allow"}},
      {.name = "train.spike",
       .field = ACCORDION_FIELD(train.spike),
       .doc = "A step whose loss is more than train.spike_factor times the "
              "running mean of some 50 losses before it; choices as for "
              "train.nonfinite.",
       .choices = {"error", "skip", "rollback", "allow"}},
      {.name = "train.spike_factor",
       .field = ACCORDION_FIELD(train.spike_factor),
       .doc = "See train.spike.",
       .range = above(1)},
      {.name = "train.max_skips",
       .field = ACCORDION_FIELD(train.max_skips),
       .doc = "Steps that \"skip\", or the loss scale of fp16, leaves out in a "
              "row before the run ends with an error.",
       .range = at_least(1)},
      {.name = "train.max_rollbacks",
       .field = ACCORDION_FIELD(train.max_rollbacks),
       .doc = "Times that \"rollback\" takes the run back before it ends it as "
              "well.",
       .range = at_least(1)},

      {.name = "optimizer.lr",
       .field = ACCORDION_FIELD(optimizer.lr),
       .doc = "Peak learning rate of AdamW.",
       .range = above(0)},
      {.name = "optimizer.betas",
       .field = ACCORDION_FIELD(optimizer.betas),
       .doc = "Decay of the running means of the gradient and of its square.",
       .range = from_to(0, 1)},
      {.name = "optimizer.eps",
       .field = ACCORDION_FIELD(optimizer.eps),
       .doc = "Added to the root of the second moment.",
       .range = above(0)},
      {.name = "optimizer.weight_decay",
       .field = ACCORDION_FIELD(optimizer.weight_decay),
       .doc = "Decoupled weight decay; parameters of one dimension (norms, "
              "biases) are left out, see optimizer.decay_norms.",
       .range = at_least(0)},
      {.name = "optimizer.clip_norm",
       .field = ACCORDION_FIELD(optimizer.clip_norm),
       .doc = "Gradients are scaled so that their global 2-norm is at most "
              "this; 0: not clipped.",
       .range = at_least(0)},
      {.name = "optimizer.loss_scale",
       .field = ACCORDION_FIELD(optimizer.loss_scale),
       .doc =
           "With fsdp.param_dtype = \"fp16\", what the loss is multiplied by "
           "at first, so that gradients fit; a power of two. Halved, and "
           "the step left out, when a gradient overflows all the same.",
       .range = {.low = 1, .high = 1e30}},
      {.name = "optimizer.loss_scale_interval",
       .field = ACCORDION_FIELD(optimizer.loss_scale_interval),
       .doc = "Steps without an overflow after which the loss scale doubles.",
       .range = at_least(1)},
      {.name = "optimizer.decay_norms",
       .field = ACCORDION_FIELD(optimizer.decay_norms),
       .doc = "Weight decay also for parameters of one dimension."},
      {.name = "optimizer.clip_in_backward",
       .field = ACCORDION_FIELD(optimizer.clip_in_backward),
       .doc = "Which norm optimizer.clip_norm bounds under "
              "memory.optimizer_in_backward, where that of the step is not "
              "known yet. previous_norm: that of the step before; in the first "
              "step as unit_norm. unit_norm: that of each layer on its own.",
       .choices = {"previous_norm", "unit_norm"}},
      {.name = "optimizer.moments_dtype",
       .field = ACCORDION_FIELD(optimizer.moments_dtype),
       .doc = "Dtype of the running means. bf16 takes half the memory of "
              "fp32; with a second beta above 0.998 it wants "
              "optimizer.stochastic_rounding.",
       .choices = {"fp32", "bf16"}},
      {.name = "optimizer.stochastic_rounding",
       .field = ACCORDION_FIELD(optimizer.stochastic_rounding),
       .doc = "Rounds bf16 moments up or down at random, right in the mean, so "
              "that small changes add up; drawn from run.seed, the same for "
              "any number of ranks and after a resume. Else to nearest."},

      {.name = "schedule.name",
       .field = ACCORDION_FIELD(schedule.name),
       .doc = "Learning rate after warm-up. constant: stays. cosine, linear: "
              "down to schedule.min_lr_ratio at the last step. wsd (warm-up, "
              "stable, decay): stays, and goes down in the last "
              "schedule.decay_steps.",
       .choices = {"constant", "cosine", "linear", "wsd"}},
      {.name = "schedule.warmup_steps",
       .field = ACCORDION_FIELD(schedule.warmup_steps),
       .doc = "Steps over which the learning rate rises linearly to "
              "optimizer.lr.",
       .range = at_least(0)},
      {.name = "schedule.min_lr_ratio",
       .field = ACCORDION_FIELD(schedule.min_lr_ratio),
       .doc = "Last learning rate over the peak, for every schedule but "
              "constant.",
       .range = {.low = 0, .high = 1}},
      {.name = "schedule.decay_steps",
       .field = ACCORDION_FIELD(schedule.decay_steps),
       .doc = "Steps at the end in which wsd goes down; 0: the last fifth of "
              "the steps, or of the time where only train.seconds ends the "
              "run.",
       .range = at_least(0)},
      {.name = "schedule.decay_shape",
       .field = ACCORDION_FIELD(schedule.decay_shape),
       .doc = "How wsd goes down: along a line, or as 1 - the square root of "
              "the part of the decay that is done.",
       .choices = {"linear", "1-sqrt"}},

      {.name = "fsdp.strategy",
       .field = ACCORDION_FIELD(fsdp.strategy),
       .doc = "full_shard: parameters, gradients and optimizer state are cut "
              "over the ranks. shard_grad_op: the same, but parameters stay "
              "whole from forward to backward. shard_optimizer: only the "
              "optimizer's state and the copy that it updates are cut. "
              "no_shard: whole everywhere, gradients all-reduced. hybrid: "
              "full_shard within each of fsdp.replicas groups of ranks.",
       .choices = {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard",
                   "hybrid"}},
      {.name = "fsdp.replicas",
       .field = ACCORDION_FIELD(fsdp.replicas),
       .doc = "Groups of consecutive ranks that each hold a whole model, cut "
              "over the ranks of the group; gradients are averaged over the "
              "groups. Divides the number of ranks. 0: for hybrid one a host, "
              "or 2 on one host; else 1.",
       .range = at_least(0)},
      {.name = "fsdp.reshard_after_forward",
       .field = ACCORDION_FIELD(fsdp.reshard_after_forward),
       .doc = "Free a unit's gathered parameters between forward and "
              "backward; unset: under full_shard and hybrid, for every unit "
              "but the root."},
      {.name = "fsdp.reshard_to_ranks",
       .field = ACCORDION_FIELD(fsdp.reshard_to_ranks),
       .doc = "Neighbouring ranks that hold one copy of a unit between "
              "forward and backward, and gather it among themselves; divides "
              "the ranks of a group. 0: all of them.",
       .range = at_least(0)},
      {.name = "fsdp.accumulation",
       .field = ACCORDION_FIELD(fsdp.accumulation),
       .doc = "Gradients of a microbatch that is not the last of its step. "
              "sharded: reduced and cut. unsharded: kept whole, nothing is "
              "communicated. deferred_all_reduce: cut within the group, "
              "averaged over replicas at the last. auto: unsharded for "
              "shard_optimizer, else sharded.",
       .choices = {"auto", "sharded", "unsharded", "deferred_all_reduce"}},
      {.name = "fsdp.keep_parameters",
       .field = ACCORDION_FIELD(fsdp.keep_parameters),
       .doc = "Parameters stay whole from one microbatch of a step to the "
              "next; unset: for shard_optimizer only."},
      {.name = "fsdp.param_dtype",
       .field = ACCORDION_FIELD(fsdp.param_dtype),
       .doc = "Dtype of gathered parameters and of computation; shards stay "
              "fp32. fp16 has a loss scale, see optimizer.loss_scale.",
       .choices = {"fp32", "bf16", "fp16"}},
      {.name = "fsdp.reduce_dtype",
       .field = ACCORDION_FIELD(fsdp.reduce_dtype),
       .doc = "Dtype to which the sum of the ranks' gradients is rounded, and "
              "in which whole gradients add up over microbatches. fp16 only "
              "with fsdp.param_dtype = \"fp16\".",
       .choices = {"fp32", "bf16", "fp16"}},
      {.name = "fsdp.prefetch",
       .field = ACCORDION_FIELD(fsdp.prefetch),
       .doc = "Units gathered ahead of the one that computes.",
       .range = {.low = 0, .high = 1e6}},
      {.name = "fsdp.prefetch_bytes",
       .field = ACCORDION_FIELD(fsdp.prefetch_bytes),
       .doc = "Most bytes gathered ahead; 0: as many as fsdp.prefetch says.",
       .range = at_least(0)},
      {.name = "fsdp.min_shard_numel",
       .field = ACCORDION_FIELD(fsdp.min_shard_numel),
       .doc = "Parameters of fewer elements are whole on every rank: small "
              "ones cost more time than memory. 0: all are cut.",
       .range = at_least(0)},
      {.name = "fsdp.copies_in_place",
       .field = ACCORDION_FIELD(fsdp.copies_in_place),
       .doc = "Whether ranks that share memory keep a copy of all parameters "
              "in fsdp.param_dtype, where that is not fp32: the optimizer "
              "writes it, and gathers move nothing. false: they are cast for "
              "each gather, and whole for a unit or two at a time."},
      {.name = "fsdp.backend",
       .field = ACCORDION_FIELD(fsdp.backend),
       .doc = "What joins the ranks. auto: by where they are. shm: shared "
              "memory, ranks of one host. gloo: TCP, any hosts. hierarchical: "
              "shm within hosts that hold as many ranks each, gloo between.",
       .choices = {"auto", "shm", "gloo", "hierarchical"}},
      {.name = "fsdp.timeout",
       .field = ACCORDION_FIELD(fsdp.timeout),
       .doc = "Seconds that a rank waits for another, at the start and in each "
              "collective, before the run ends with an error that names both.",
       .range = {.low = 1, .high = 1e6}},

      {.name = "memory.activation_checkpointing",
       .field = ACCORDION_FIELD(memory.activation_checkpointing),
       .doc = "What is computed again in backward in place of being kept. "
              "none. selective: norms, activations and attention, results of "
              "matmuls are kept. full: layers keep no activations but their "
              "input, and run forward again, for about a third more "
              "computation; a number n: every n-th layer. auto: the first of "
              "these, from none to full, that fits memory.limit."},
      {.name = "memory.chunked_loss_tokens",
       .field = ACCORDION_FIELD(memory.chunked_loss_tokens),
       .doc = "Tokens of a rank whose head and loss are computed at a time, so "
              "that the logits of all never exist at once. 0: all.",
       .range = at_least(0)},
      {.name = "memory.optimizer_in_backward",
       .field = ACCORDION_FIELD(memory.optimizer_in_backward),
       .doc = "Steps each layer in backward, as soon as its gradient is there, "
              "which is then freed. Gradients are clipped as "
              "optimizer.clip_in_backward says; a step that train.nonfinite "
              "does not take leaves out the layer at fault and those stepped "
              "after it, not those before. For one microbatch a step."},
      {.name = "memory.offload",
       .field = ACCORDION_FIELD(memory.offload),
       .doc =
           "What is kept out of memory, read ahead and written behind. none. "
           "optimizer: AdamW's moments. gradients: those, and the sharded "
           "gradients from their reduction to the step; with "
           "memory.optimizer_in_backward none are left to offload, so use "
           "another. parameters: those, and the sharded parameters, which "
           "are read before each all-gather. Needs checkpoint.async = "
           "false. With train.device = \"cuda\": parameters, to the host, "
           "from where the device reads them and where the CPU steps them.",
       .choices = {"none", "optimizer", "gradients", "parameters"}},
      {.name = "memory.offload_activations",
       .field = ACCORDION_FIELD(memory.offload_activations),
       .doc = "Moves the inputs of layers that keep nothing else "
              "(memory.activation_checkpointing = \"full\", or every n-th) to "
              "memory.offload_to, from forward to backward."},
      {.name = "memory.offload_to",
       .field = ACCORDION_FIELD(memory.offload_to),
       .doc = "Where memory.offload and memory.offload_activations move it. "
              "nvme: the disk of the working "
              "folder; or a folder, whose disk serves. In files without a "
              "name, gone with the process. host: the memory of a device's "
              "host, not for a CPU, where that is the memory itself.",
       .choices = {"nvme", "host"},
       .is_path = true},
      {.name = "memory.limit",
       .field = ACCORDION_FIELD(memory.limit),
       .doc = "Most memory that a rank may hold for parameters, gradients, "
              "optimizer, activations and buffers together, as \"8GiB\", "
              "\"800MiB\" or a number of MiB; code and libraries come on top. "
              "A step that would hold more ends the run with an error that "
              "says what is held, and what would save how much. Empty: no "
              "limit."},
  };
}

}  // namespace accordion::detail
