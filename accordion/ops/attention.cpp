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
/// LibTorch's kernel, which walks over keys too, is the better one. It knows no
/// windows, though.
constexpr int64_t kLongestTiled = 2048;

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k,
                        int64_t window) {
  return {q.size(0), q.size(1), q.size(2),
          k.size(2), q.size(3), std::min(window, q.size(1))};
}

/// Calls `body` with a null pointer of the tiles' type for the dtype of
/// `tensor`; not at all on meta ([Note: operators on meta]).
template <class Body>
void dispatch_tile(const at::Tensor& tensor, Body&& body) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (tensor.is_meta()) {
    return;
  }
  if (dtype == at::kFloat) {
    body(static_cast<float*>(nullptr));
  } else {
    TORCH_INTERNAL_ASSERT(dtype == at::kBFloat16);
    body(static_cast<kernels::Bf16*>(nullptr));
  }
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

/// The result, and the logarithms of the sums of exponentials of scores
/// [batch, heads, seq_len]. Operands are contiguous.
std::vector<at::Tensor> attend(const std::vector<at::Tensor>& qkv,
                               int64_t window) {
  const at::Tensor& q = qkv[0];
  const at::Tensor& k = qkv[1];
  const at::Tensor& v = qkv[2];
  const AttentionShape shape = shape_of(q, k, window);
  at::Tensor out = at::empty(q.sizes(), q.options());
  at::Tensor log_sums = at::empty({shape.batch, shape.heads, shape.seq_len},
                                  q.options().dtype(at::kFloat));
  const int64_t q_step = shape.seq_len * shape.q_stride();
  const int64_t kv_step = shape.seq_len * shape.kv_stride();
  dispatch_tile(q, [&](auto* type) {
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
  return {out, log_sums};
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  /// `recomputation`: of what attend returns, or null to keep it.
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& q_input,
      const at::Tensor& k_input, const at::Tensor& v_input, int64_t window,
      const c10::intrusive_ptr<Recomputation>& recomputation) {
    variable_list saved = {q_input.contiguous(), k_input.contiguous(),
                           v_input.contiguous()};
    const std::vector<at::Tensor> results = attend(saved, window);
    if (recomputation) {
      recomputation->add_user();
      ctx->saved_data["recomputation"] =
          c10::IValue::make_capsule(recomputation);
    } else {
      saved.insert(saved.end(), results.begin(), results.end());
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["window"] = window;
    return results[0];
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list saved = ctx->get_saved_variables();
    if (saved.size() == 3) {
      const auto capsule = ctx->saved_data["recomputation"].toCapsule();
      const auto results = static_cast<Recomputation&>(*capsule).results(saved);
      saved.insert(saved.end(), results.begin(), results.end());
    }
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const at::Tensor dout = gradients[0].contiguous();
    const AttentionShape shape =
        shape_of(q, k, ctx->saved_data["window"].toInt());
    at::Tensor dq = at::empty(q.sizes(), q.options());
    at::Tensor dk = at::empty(k.sizes(), k.options());
    at::Tensor dv = at::empty(v.sizes(), v.options());
    const int64_t q_step = shape.seq_len * shape.q_stride();
    const int64_t kv_step = shape.seq_len * shape.kv_stride();
    dispatch_tile(q, [&](auto* type) {
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
    return {dq, dk, dv, at::Tensor(), at::Tensor()};
  }
};

/// LibTorch's kernel keeps the same tensors for backward, so that on meta it
/// makes no difference which of the two it would be.
bool is_tiled(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              int64_t window) {
  if (!detail::has_kernel({q, k, v}) || q.scalar_type() == at::kHalf ||
      q.numel() == 0) {
    return false;
  }
  const bool fits = q.size(1) <= kLongestTiled || window < q.size(1);
  const bool pairs = q.scalar_type() == at::kFloat || q.size(3) % 2 == 0;
  return q.is_meta() ||
         (fits && pairs && detail::can_multiply(q.scalar_type()));
}

void check_attention(const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, int64_t window) {
  TORCH_CHECK_VALUE(window > 0, "[causal_attention] window is ", window,
                    ": a position sees itself at least, which is 1.");
  TORCH_CHECK_VALUE(
      q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() &&
          q.size(0) == k.size(0) && q.size(1) == k.size(1) &&
          q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
      "[causal_attention] q, k and v have shapes ", q.sizes(), ", ", k.sizes(),
      " and ", v.sizes(),
      ": they must be [batch, seq_len, heads, head_dim], k and v alike, with "
      "heads of q a multiple of theirs.");
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, int64_t window) {
  check_attention(q, k, v, window);
  if (detail::has_kernel({q, k, v}) && q.scalar_type() == at::kHalf) {
    // [Note: matmuls in fp16]
    return causal_attention(q.to(at::kFloat), k.to(at::kFloat),
                            v.to(at::kFloat), window)
        .to(at::kHalf);
  }
  if (!is_tiled(q, k, v, window)) {
    return composite::causal_attention(q, k, v, window);
  }
  return CausalAttention::apply(q, k, v, window,
                                c10::intrusive_ptr<Recomputation>());
}

Operand recomputed_attention(const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, int64_t window) {
  check_attention(q, k, v, window);
  if (!is_tiled(q, k, v, window)) {
    return causal_attention(q, k, v, window).flatten(2);
  }
  const auto recomputation = c10::make_intrusive<Recomputation>(
      [window](const std::vector<at::Tensor>& from) {
        return attend(from, window);
      });
  const variable_list from = {q.contiguous(), k.contiguous(), v.contiguous()};
  return {
      CausalAttention::apply(from[0], from[1], from[2], window, recomputation)
          .flatten(2),
      from, recomputation};
}

}  // namespace accordion::ops
