// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/swiglu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "accordion/ops/composite.h"
#include "accordion/ops/element.h"
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::ops {
namespace {

using detail::read;
using detail::write;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kElementsPerTask = 16384;

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_input,
                            const at::Tensor& up_input) {
    const at::Tensor gate = gate_input.contiguous();
    const at::Tensor up = up_input.contiguous();
    at::Tensor y = at::empty_like(gate);
    detail::dispatch_element(gate, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(
          0, gate.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
            kernels::swiglu(read<T>(gate) + begin, read<T>(up) + begin,
                            write<T>(y) + begin, end - begin);
          });
    });
    ctx->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dgate = at::empty_like(saved[0]);
    at::Tensor dup = at::empty_like(saved[1]);
    detail::dispatch_element(dy, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(
          0, dy.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
            kernels::swiglu_backward(
                read<T>(saved[0]) + begin, read<T>(saved[1]) + begin,
                read<T>(dy) + begin, write<T>(dgate) + begin,
                write<T>(dup) + begin, end - begin);
          });
    });
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK_VALUE(gate.sizes() == up.sizes(), "[swiglu] gate has shape ",
                    gate.sizes(), " but up ", up.sizes(),
                    ": they must be alike.");
  if (!detail::has_kernel({gate, up})) {
    return composite::swiglu(gate, up);
  }
  return Swiglu::apply(gate, up);
}

Operand recomputed_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return {swiglu(gate, up),
          {gate, up},
          c10::make_intrusive<Recomputation>(
              [](const std::vector<at::Tensor>& from) {
                return std::vector{swiglu(from[0], from[1])};
              })};
}

}  // namespace accordion::ops
