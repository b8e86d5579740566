// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/attention_tiles.h"
#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/product.h"

namespace accordion::ops {
namespace {

using detail::AttentionShape;
using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Beyond this a tile of scores against all keys outgrows the caches, and
/// LibTorch's kernel, which walks over keys too, is the better one.
constexpr int64_t kLongestTiled = 2048;

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k) {
  return {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3)};
}

/// Calls body(sequence, kv_head) for each key head of each sequence.
template <class Body>
void for_each_kv_head(const AttentionShape& shape, Body&& body) {
  at::parallel_for(0, shape.batch * shape.kv_heads, 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       body(i / shape.kv_heads, i % shape.kv_heads);
                     }
                   });
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_input,
                            const at::Tensor& k_input,
                            const at::Tensor& v_input) {
    const at::Tensor q = q_input.contiguous();
    const at::Tensor k = k_input.contiguous();
    const at::Tensor v = v_input.contiguous();
    const AttentionShape shape = shape_of(q, k);
    at::Tensor out = at::empty(q.sizes(), q.options());
    at::Tensor log_sums = at::empty({shape.batch, shape.heads, shape.seq_len},
                                    q.options().dtype(at::kFloat));
    const int64_t q_step = shape.seq_len * shape.q_stride();
    const int64_t kv_step = shape.seq_len * shape.kv_stride();
    detail::dispatch_element(q.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for_each_kv_head(shape, [&](int64_t i, int64_t kv_head) {
        detail::attend<T>(
            shape,
            {read<T>(q) + i * q_step, read<T>(k) + i * kv_step,
             read<T>(v) + i * kv_step, write<T>(out) + i * q_step,
             write<float>(log_sums) + i * shape.heads * shape.seq_len},
            kv_head);
      });
    });
    ctx->save_for_backward({q, k, v, out, log_sums});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const at::Tensor dout = gradients[0].contiguous();
    const AttentionShape shape = shape_of(q, k);
    at::Tensor dq = at::empty(q.sizes(), q.options());
    at::Tensor dk = at::empty(k.sizes(), k.options());
    at::Tensor dv = at::empty(v.sizes(), v.options());
    const int64_t q_step = shape.seq_len * shape.q_stride();
    const int64_t kv_step = shape.seq_len * shape.kv_stride();
    detail::dispatch_element(q.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for_each_kv_head(shape, [&](int64_t i, int64_t kv_head) {
        detail::attend_backward<T>(
            shape,
            {read<T>(q) + i * q_step, read<T>(k) + i * kv_step,
             read<T>(v) + i * kv_step, read<T>(saved[3]) + i * q_step,
             read<float>(saved[4]) + i * shape.heads * shape.seq_len,
             read<T>(dout) + i * q_step, write<T>(dq) + i * q_step,
             write<T>(dk) + i * kv_step, write<T>(dv) + i * kv_step},
            kv_head);
      });
    });
    return {dq, dk, dv};
  }
};

bool is_tiled(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return detail::has_kernel({q, k, v}) && q.numel() > 0 &&
         q.size(1) <= kLongestTiled && q.size(3) % 2 == 0 &&
         detail::can_multiply(q.scalar_type());
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
  TORCH_CHECK_VALUE(
      q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() &&
          q.size(0) == k.size(0) && q.size(1) == k.size(1) &&
          q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
      "[causal_attention] q, k and v have shapes ", q.sizes(), ", ", k.sizes(),
      " and ", v.sizes(),
      ": they must be [batch, seq_len, heads, head_dim], k and v alike, with "
      "heads of q a multiple of theirs.");
  if (!is_tiled(q, k, v)) {
    return composite::causal_attention(q, k, v);
  }
  return CausalAttention::apply(q, k, v);
}

}  // namespace accordion::ops
