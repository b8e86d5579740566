// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/fitted_constants.h"

namespace accordion::plan {

const FittedConstants& fitted_constants() {
  // "Fitted": chosen to make the logarithms of predicted and published
  // throughput agree over the primary rows, by least squares with a robust
  // loss. "Taken": from the source named, and left alone by the fit.
  static const FittedConstants kConstants = {
      .ampere =
          {// Fitted: what large bf16 products reach of 312 TFLOPS, whose clock
           // falls below boost at 400 W. Rows of A100, most of them MPT.
           .gemm_efficiency = 0.732,
           // No 8-bit floating point before Hopper but on Ada, where it is
           // taken to be as good as 16 bits.
           .gemm_8bit_efficiency = 0.732,
           // Taken: a copy of large tensors runs at about nine tenths of the
           // datasheet's rate.
           .memory_efficiency = 0.9,
           // Fitted, one for all GPUs: loading a tile's first operands and
           // writing its results. Narrow models, and tensor parallelism.
           .gemm_fill_s = 7.3e-6,
           // Fitted: FlashAttention-2, forward and backward, of what a causal
           // mask leaves. Llama on A100 at 4,096 and MPT up to 65,536 tokens.
           .attention_efficiency = 0.549},
      .hopper =
          {// Fitted: the same of 989 TFLOPS at 700 W. Rows of H100 in bf16.
           .gemm_efficiency = 0.619,
           // Fitted: of 1,979 TFLOPS in fp8. Rows of H100, H200 and Blackwell.
           .gemm_8bit_efficiency = 0.722,
           .memory_efficiency = 0.9,
           .gemm_fill_s = 7.3e-6,
           // Fitted: FlashAttention-2, which does not use what Hopper added.
           // Rows of H100 from 8,192 to 262,144 tokens.
           .attention_efficiency = 0.303},
      // Taken: nccl-tests of 8 A100 are usually at 230 to 250 of 300 GB/s, and
      // of 8 H100 about as far below 450.
      .nvlink_efficiency = 0.78,
      // Fitted: of a port's rate, protocol and congestion. Rows of more than
      // one host.
      .network_efficiency = 0.628,
      // Fitted: FlashAttention-1 in Triton, which llm-foundry used then,
      // against FlashAttention-2. Rows of MPT at 8,192 tokens and more.
      .attention_triton = 0.63,
      // Fitted: what a kernel costs on the device however small it is. Rows
      // with few tokens in a microbatch.
      .launch_s = 3.6e-6,
      // Fitted: blocks of PyTorch's allocator that are held and not used. Rows
      // of peak memory.
      .allocator_overhead = 0.05,
      // Fitted: differences between GPUs of a type; a step waits for the
      // slowest. The same model on 8 to 512.
      .speed_spread = 0.013,
      // Fitted: multiprocessors and memory traffic that NCCL's kernels take
      // from computation beside them. Rows on 128 to 512 GPUs against 8.
      .collective_share = 0.094,
  };
  return kConstants;
}

}  // namespace accordion::plan
